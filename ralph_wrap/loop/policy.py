"""When to go on, how long to wait, when and with which status to end: pure, no clock, no process."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ralph_wrap.config import Settings

CUT_SHORT = 124
"""Exit status of an iteration that a limit ended (``timeout(1)``)."""

_FIRST_WAIT = 1.0  # seconds after the first failure; doubled with each further one
_LONGEST_WAIT = 60.0
_DOUBLINGS = 6  # reach the longest wait; without a bound, 1,025 failures are too many for a float


class Cut(Enum):
    """What ended an iteration from outside."""

    ITERATION_TIMEOUT = "iteration-timeout"
    IDLE_TIMEOUT = "idle-timeout"
    MAX_TIME = "max-time"
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

    """

    status: int
    promised: bool = False
    changed: bool | None = None
    cut: Cut | None = None
    last: bool = False

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
    if settings.max_failures and state.failures >= settings.max_failures:
        return state, End("max-failures", iteration.status)
    if settings.max_iterations and state.iterations >= settings.max_iterations:
        return state, End("max-iterations", iteration.status)
    if settings.max_stalls and state.stalls >= settings.max_stalls:
        return state, End("max-stalls", iteration.status)
    doublings = min(state.failures - 1, _DOUBLINGS)
    backoff = min(_FIRST_WAIT * 2**doublings, _LONGEST_WAIT) if iteration.failed else 0.0
    return state, GoOn(settings.delay + backoff)
