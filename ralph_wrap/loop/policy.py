"""When to go on, how long to wait, when and with which status to end: pure, no clock, no process."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.config import OnLeak
from ralph_wrap.errors import RalphError

if TYPE_CHECKING:
    from ralph_wrap.config import Settings

CUT_SHORT = 124
"""Exit status of an iteration that a limit ended (``timeout(1)``)."""

_FIRST_WAIT = 1.0  # seconds after the first failure; doubled with each further one
_LONGEST_WAIT = 60.0
_DOUBLINGS = 6  # reach the longest wait; without a bound, 1,025 failures are too many for a float


class Cut(Enum):
    """What ended an iteration, or the setup before the first one, from outside."""

    ITERATION_TIMEOUT = "iteration-timeout"
    IDLE_TIMEOUT = "idle-timeout"
    MAX_TIME = "max-time"
    SETUP_TIMEOUT = "setup-timeout"
    SIGNAL = "signal"
    STOP = "stop"


class Iteration(NamedTuple):
    """How one run of the agent ended.

    Attributes:
        status: its exit status as a shell counts it.
        promised: its answer held the promise.
        changed: HEAD or a file changed; ``None`` if nobody looked.
        cut: what ended it from outside.
        last: somebody has asked for no further one (``ralph-wrap stop``).
        leaked: something outside the workspace has changed meanwhile.

    """

    status: int
    promised: bool = False
    changed: bool | None = None
    cut: Cut | None = None
    last: bool = False
    leaked: bool = False

    @property
    def failed(self) -> bool:
        """Whether it ended with a failure, which a promise makes up for."""
        return self.status != 0 and not self.promised


class State(NamedTuple):
    """Where a loop stands between two iterations."""

    iterations: int = 0
    failures: int = 0
    stalls: int = 0


class GoOn(NamedTuple):
    """Run another iteration after a pause in seconds."""

    pause: float


class End(NamedTuple):
    """End the loop: by what (``ended_by`` in the report), and with which exit status."""

    ended_by: str
    status: int


class LoopResult(NamedTuple):
    """How a loop ended.

    Attributes:
        ended_by: as in the report.
        status: exit status.
        iterations: how many were started.

    """

    ended_by: str
    status: int
    iterations: int


def after(settings: Settings, state: State, iteration: Iteration) -> tuple[State, GoOn | End]:
    """Decide what follows an iteration.

    A limit of 0 is no limit. What a signal cut short is decided by the driver, who knows which signal.
    """
    state = State(
        iterations=state.iterations + 1,
        failures=state.failures + 1 if iteration.failed else 0,
        stalls=state.stalls + 1 if iteration.changed is False else 0,
    )
    if iteration.promised or iteration.last:
        return state, End("promise" if iteration.promised else "stop", 0)
    if iteration.cut is Cut.MAX_TIME:
        return state, End("max-time", CUT_SHORT)
    if iteration.leaked and settings.on_leak is OnLeak.STOP:
        return state, End("leak", RalphError.exit_code)
    for ended_by, limit, count in (
        ("max-failures", settings.max_failures, state.failures),
        ("max-iterations", settings.max_iterations, state.iterations),
        ("max-stalls", settings.max_stalls, state.stalls),
    ):
        if limit and count >= limit:
            return state, End(ended_by, iteration.status)
    doublings = min(state.failures - 1, _DOUBLINGS)
    backoff = min(_FIRST_WAIT * 2**doublings, _LONGEST_WAIT) if iteration.failed else 0.0
    return state, GoOn(settings.delay + backoff)
