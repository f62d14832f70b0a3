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
_FIRST_HOLD = 30.0  # seconds after the first refusal that tells no time; doubled with each further one
_LONGEST_HOLD = 1800.0
LONGEST_TOLD_HOLD = 86400.0  # a wrong time must not stop a loop for ever: to ask once a day costs nothing


class Cut(Enum):
    """What ended an iteration, or the setup before the first one, from outside."""

    ITERATION_TIMEOUT = "iteration-timeout"
    IDLE_TIMEOUT = "idle-timeout"
    MAX_TIME = "max-time"
    MAX_TOKENS = "max-tokens"
    MAX_COST = "max-cost"
    AFTER_PROMISE = "after-promise"
    SETUP_TIMEOUT = "setup-timeout"
    SIGNAL = "signal"
    STOP = "stop"


_ENDING = (Cut.MAX_TIME, Cut.MAX_TOKENS, Cut.MAX_COST)  # limits of the loop, and not of an iteration


class Refusal(NamedTuple):
    """The agent's account may not be used for now.

    Attributes:
        seconds: until it may be used again; ``None`` if that was not told, 0 or less if it has passed.

    """

    seconds: float | None = None


class Iteration(NamedTuple):
    """How one run of the agent ended.

    Attributes:
        status: its exit status as a shell counts it.
        promised: its answer held the promise.
        changed: HEAD or a file changed; ``None`` if nobody looked.
        cut: what ended it from outside.
        last: somebody has asked for no further one (``ralph-wrap stop``).
        leaked: something outside the workspace has changed meanwhile.
        refused: it could not do its work because of the account's usage limit.
        passing: it failed because of the network, or of a service that is overloaded.
        reached: the limit of tokens or cost that was reached by its end.

    """

    status: int
    promised: bool = False
    changed: bool | None = None
    cut: Cut | None = None
    last: bool = False
    leaked: bool = False
    refused: Refusal | None = None
    passing: bool = False
    reached: Cut | None = None

    @property
    def failed(self) -> bool:
        """Whether it ended with a failure, which a promise makes up for."""
        return self.status != 0 and not self.promised


class State(NamedTuple):
    """Where a loop stands between two iterations; all but *iterations* are counted in a row.

    Attributes:
        iterations: that were done; one that was refused will be done again.
        failures: iterations that failed.
        stalls: iterations that changed nothing.
        holds: refusals without a time that is still to come.

    """

    iterations: int = 0
    failures: int = 0
    stalls: int = 0
    holds: int = 0


class GoOn(NamedTuple):
    """Run another iteration after a pause in seconds."""

    pause: float


class Again(NamedTuple):
    """Repeat the iteration after so many seconds, when the account may be used again."""

    hold: float


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


def after(settings: Settings, state: State, iteration: Iteration) -> tuple[State, GoOn | Again | End]:
    """Decide what follows an iteration.

    A limit of 0 is no limit. What a signal cut short is decided by the driver, who knows which signal.
    An iteration that was refused is neither counted nor a failure, nor does it end a row of them. One that
    failed for a passing reason is a failure, but tells nothing of whether the work goes on.
    """
    before, state = state, _counted(state, iteration)
    if end := _ended_by(settings, iteration):
        return state, end
    if iteration.refused is not None:
        return _held(before, iteration.refused)
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


def _ended_by(settings: Settings, iteration: Iteration) -> End | None:
    """Return what ends the loop with an iteration, however many there were."""
    if iteration.promised or iteration.last:
        return End("promise" if iteration.promised else "stop", 0)
    if iteration.cut is not None and iteration.cut in _ENDING:
        return End(iteration.cut.value, CUT_SHORT)
    if iteration.leaked and settings.on_leak is OnLeak.STOP:
        return End("leak", RalphError.exit_code)
    if iteration.reached is not None:
        return End(iteration.reached.value, iteration.status)
    return None


def _counted(state: State, iteration: Iteration) -> State:
    stalls = state.stalls + 1 if iteration.changed is False else 0
    return State(
        iterations=state.iterations + 1,
        failures=state.failures + 1 if iteration.failed else 0,
        stalls=state.stalls if iteration.passing else stalls,
    )


def _held(state: State, refusal: Refusal) -> tuple[State, Again]:
    if refusal.seconds is not None and refusal.seconds > 0:
        return state._replace(holds=0), Again(min(refusal.seconds, LONGEST_TOLD_HOLD))
    hold = min(_FIRST_HOLD * 2 ** min(state.holds, _DOUBLINGS), _LONGEST_HOLD)
    return state._replace(holds=state.holds + 1), Again(hold)
