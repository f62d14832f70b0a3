"""Decide whether the loop continues, waits or ends, and with which status: pure, no clock, no process."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ralph_wrap.config import GateSettings, LoopLimits, OnLeak
from ralph_wrap.errors import RalphError

CUT_SHORT = 124
"""Exit status of an iteration that reached a limit (as of ``timeout(1)``)."""

BLOCKED = 75
"""Exit status of a loop whose agent asks for a person (EX_TEMPFAIL of sysexits(3))."""

NOT_LOGGED_IN = 77
"""Exit status of a loop whose agent is not logged in (EX_NOPERM of sysexits(3))."""

_FIRST_WAIT = 1.0  # seconds after the first failure; each further failure doubles it
_LONGEST_WAIT = 60.0
_DOUBLINGS = 6  # reach the longest wait; without this bound, 1,025 failures overflow a float
_FIRST_HOLD = 30.0  # seconds after the first refusal without an end time; each further one doubles it
_LONGEST_UNTIMED_HOLD = 1800.0
LONGEST_HOLD = 86400.0  # a wrong end time must not stop a loop for ever; one try a day costs nothing


class CutReason(Enum):
    """The outside cause that ended an iteration, or a command of the project before or after it."""

    ITERATION_TIMEOUT = "iteration-timeout"
    IDLE_TIMEOUT = "idle-timeout"
    MAX_TIME = "max-time"
    MAX_TOKENS = "max-tokens"
    MAX_COST = "max-cost"
    AFTER_PROMISE = "after-promise"
    SETUP_TIMEOUT = "setup-timeout"
    VERIFY_TIMEOUT = "verify-timeout"
    SIGNAL = "signal"
    STOP = "stop"
    TELL = "tell"


_ENDING = (
    CutReason.MAX_TIME,
    CutReason.MAX_TOKENS,
    CutReason.MAX_COST,
)  # limits of the loop, not of an iteration
_OUTSIDE = (CutReason.SIGNAL, CutReason.STOP, CutReason.TELL)


class UsageLimitRefusal(NamedTuple):
    """The agent's account has reached a usage limit.

    Attributes:
        seconds: time until the limit ends; ``None`` if it is unknown, 0 or less if the limit has ended.
        until: the same moment, in seconds since the epoch.
        message: the message of the agent.

    """

    seconds: float | None = None
    until: float | None = None
    message: str = ""


class Iteration(NamedTuple):
    """The result of one run of the agent.

    Attributes:
        status: its exit status, in the numbers of a shell.
        promised: its answer contains the promise.
        changed: HEAD or a file changed; ``None`` if this was not checked.
        cut: the outside cause that ended it; ``None`` if it ended by itself.
        last: a user asked for no further iteration (``ralph-wrap stop``).
        leaked: a file, a ref or the configuration outside the workspace changed during the iteration.
        refused: the usage limit of the account prevented its work; ``None`` if it did not.
        passing: it failed because of the network, or of an overloaded service.
        lost: the worktree cannot be used any more: the agent has removed it, or put another repository there.
        reached: the limit on tokens or cost that it reached by its end.
        blocked: its answer asks for a person.
        question: what it asks then.
        verified: the gate passed after it; ``None`` if the gate did not run.
        logged_out: what the agent says of its missing login; empty if it does not miss one.
        told: a person has told something that its agent has not read (``ralph-wrap tell``).

    """

    status: int
    promised: bool = False
    changed: bool | None = None
    cut: CutReason | None = None
    last: bool = False
    leaked: bool = False
    refused: UsageLimitRefusal | None = None
    passing: bool = False
    lost: bool = False
    reached: CutReason | None = None
    blocked: bool = False
    question: str = ""
    verified: bool | None = None
    logged_out: str = ""
    told: bool = False

    @property
    def done(self) -> bool:
        """Whether its promise counts: the gate has passed, and the agent has read all that it was told."""
        return self.promised and self.verified is not False and not self.told

    @property
    def failed(self) -> bool:
        """Whether it failed; with a promise, no exit status is a failure."""
        return self.status != 0 and not (self.promised or self.blocked)


class LoopState(NamedTuple):
    """The counters of a loop between two iterations; all but *iterations* count iterations in a row.

    Attributes:
        iterations: iterations that are done; a refused iteration will run again and does not count.
        failures: iterations that failed.
        stalls: iterations that changed nothing.
        holds: refusals without an end time, or with one in the past.

    """

    iterations: int = 0
    failures: int = 0
    stalls: int = 0
    holds: int = 0


class NextIteration(NamedTuple):
    """Run another iteration after a pause in seconds."""

    pause: float


class RepeatIteration(NamedTuple):
    """Repeat the iteration after a pause in seconds, when the usage limit has ended or there is money."""

    hold: float


class EndLoop(NamedTuple):
    """End the loop, with a cause (``ended_by`` in the report) and an exit status."""

    ended_by: str
    status: int


class LoopResult(NamedTuple):
    """The result of a loop.

    Attributes:
        ended_by: the cause, as in the report.
        status: exit status.
        iterations: number of iterations that were started.
        question: what the agent asks a person, if that ended the loop.
        logged_out: what the agent says of its missing login, if that ended the loop.

    """

    ended_by: str
    status: int
    iterations: int
    question: str = ""
    logged_out: str = ""


def after(
    limits: LoopLimits, state: LoopState, iteration: Iteration, on_leak: OnLeak = OnLeak.REPORT
) -> tuple[LoopState, NextIteration | RepeatIteration | EndLoop]:
    """Decide the step after an iteration.

    A limit of 0 is no limit. If a signal ended the iteration, the driver decides: it knows the signal.
    A refused iteration does not count, is no failure, and does not end a row of failures. An iteration that
    failed for a temporary reason is a failure. It does not change the number of stalls. An iteration that a
    message has ended counts, but not as the last one: the message is for the next.
    """
    before, state = state, _counted(state, iteration)
    if end := _ended_by(iteration, on_leak):
        return state, end
    if iteration.refused is not None:
        return _held(before, iteration.refused)
    if iteration.cut is CutReason.TELL:
        if limits.max_iterations and state.iterations >= limits.max_iterations:
            return before, RepeatIteration(0.0)  # a message of a person is heard
        return before._replace(iterations=state.iterations), NextIteration(0.0)
    for ended_by, limit, count in (
        ("max-failures", limits.max_failures, state.failures),
        ("max-iterations", limits.max_iterations, state.iterations),
        ("max-stalls", 0 if iteration.told else limits.max_stalls, state.stalls),
    ):
        if limit and count >= limit:
            return state, EndLoop(ended_by, iteration.status)
    doublings = min(state.failures - 1, _DOUBLINGS)
    backoff = min(_FIRST_WAIT * 2**doublings, _LONGEST_WAIT) if iteration.failed else 0.0
    return state, NextIteration(limits.delay + backoff)


def needs_gate(settings: GateSettings, iteration: Iteration) -> bool:
    """Return whether the gate runs after an iteration.

    An iteration that a limit of the loop, a signal or a request has ended is the last one: only its promise
    is worth a proof. What is not known to be unchanged may have changed.
    """
    if (
        not settings.verify
        or iteration.blocked
        or iteration.refused is not None
        or iteration.lost
        or iteration.cut in _OUTSIDE
    ):
        return False
    if iteration.promised:
        return True
    return settings.verify_each and iteration.changed is not False and iteration.cut not in _ENDING


def _ended_by(iteration: Iteration, on_leak: OnLeak) -> EndLoop | None:
    """Return the end of the loop if this iteration ends it, at any number of iterations."""
    if iteration.blocked:
        return EndLoop("blocked", BLOCKED)
    if iteration.done or iteration.last:
        return EndLoop("promise" if iteration.done else "stop", 0)
    if iteration.logged_out:  # nothing but a person can change that
        return EndLoop("not-logged-in", NOT_LOGGED_IN)
    if iteration.cut is not None and iteration.cut in _ENDING:
        return EndLoop(iteration.cut.value, CUT_SHORT)
    if iteration.lost or (iteration.leaked and on_leak is OnLeak.STOP):
        return EndLoop("leak", RalphError.exit_code)
    return EndLoop(iteration.reached.value, iteration.status) if iteration.reached is not None else None


def _counted(state: LoopState, iteration: Iteration) -> LoopState:
    stalls = state.stalls + 1 if iteration.changed is False else 0
    return LoopState(
        iterations=state.iterations + 1,
        failures=state.failures + 1 if iteration.failed else 0,
        stalls=state.stalls if iteration.passing else stalls,
    )


def _held(state: LoopState, refusal: UsageLimitRefusal) -> tuple[LoopState, RepeatIteration]:
    if refusal.seconds is not None and refusal.seconds > 0:
        return state._replace(holds=0), RepeatIteration(min(refusal.seconds, LONGEST_HOLD))
    hold = min(_FIRST_HOLD * 2 ** min(state.holds, _DOUBLINGS), _LONGEST_UNTIMED_HOLD)
    return state._replace(holds=state.holds + 1), RepeatIteration(hold)
