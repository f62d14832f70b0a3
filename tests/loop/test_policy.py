"""What follows an iteration: a table of everything that can come before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.config import OnLeak, Settings
from ralph_wrap.loop.policy import (
    CutReason,
    EndLoop,
    Iteration,
    LoopState,
    NextIteration,
    RepeatIteration,
    UsageLimitRefusal,
    after,
    needs_gate,
)

GOOD = Iteration(0, changed=True)
BAD = Iteration(3, changed=True)
LIMITED = Iteration(1, refused=UsageLimitRefusal(90.0))
UNTIMED = Iteration(1, refused=UsageLimitRefusal())


def _settings(**limits: Any) -> Settings:
    """Return settings without any limit but the given ones."""
    unlimited = {"max_iterations": 0, "max_failures": 0, "max_stalls": 0}
    return Settings(project=Path("/x"), command=("agent",), **{**unlimited, **limits})


STATES = [
    (LoopState(), GOOD, LoopState(1, 0, 0)),
    (LoopState(4, 2, 3), GOOD, LoopState(5, 0, 0)),
    (LoopState(4, 2, 3), BAD, LoopState(5, 3, 0)),
    (LoopState(4, 2, 3), Iteration(0, changed=False), LoopState(5, 0, 4)),
    (LoopState(4, 2, 3), Iteration(3, changed=False), LoopState(5, 3, 4)),
    (LoopState(4, 2, 3), Iteration(0, changed=None), LoopState(5, 0, 0)),
    (LoopState(4, 2, 3), Iteration(3, promised=True, changed=True), LoopState(5, 0, 0)),
    (LoopState(4, 2, 3), Iteration(124, changed=True, cut=CutReason.IDLE_TIMEOUT), LoopState(5, 3, 0)),
    (LoopState(4, 2, 3), Iteration(124, changed=True, cut=CutReason.ITERATION_TIMEOUT), LoopState(5, 3, 0)),
    # Refused: not counted at all, and the next one that is counted goes on where it was.
    (LoopState(4, 2, 3), LIMITED, LoopState(4, 2, 3)),
    (LoopState(4, 2, 3, 5), LIMITED, LoopState(4, 2, 3)),
    (LoopState(4, 2, 3), UNTIMED, LoopState(4, 2, 3, 1)),
    (LoopState(4, 2, 3, 1), UNTIMED, LoopState(4, 2, 3, 2)),
    (LoopState(4, 2, 3, 1), Iteration(1, refused=UsageLimitRefusal(-1.0)), LoopState(4, 2, 3, 2)),
    (LoopState(4, 2, 3, 1), GOOD, LoopState(5, 0, 0)),
    # The network: a failure, which says nothing about the work.
    (LoopState(4, 2, 3), Iteration(1, changed=True, passing=True), LoopState(5, 3, 3)),
    (LoopState(4, 2, 3), Iteration(1, changed=False, passing=True), LoopState(5, 3, 3)),
]


@pytest.mark.parametrize(("before", "iteration", "then"), STATES)
def test_an_iteration_is_counted(before: LoopState, iteration: Iteration, then: LoopState) -> None:
    """Failures and stalls are counted in a row; a kept promise is no failure, whatever its status."""
    assert after(_settings(), before, iteration)[0] == then


ENDS: list[tuple[dict[str, Any], LoopState, Iteration, EndLoop | RepeatIteration | NextIteration]] = [
    # A kept promise ends the loop well, whatever else is true.
    ({}, LoopState(), Iteration(0, promised=True), EndLoop("promise", 0)),
    ({}, LoopState(), Iteration(3, promised=True), EndLoop("promise", 0)),
    (
        {"max_iterations": 1, "max_failures": 1},
        LoopState(),
        Iteration(3, promised=True),
        EndLoop("promise", 0),
    ),
    ({}, LoopState(), Iteration(124, promised=True, cut=CutReason.MAX_TIME), EndLoop("promise", 0)),
    # The user wants no further iteration: nothing else counts, but a kept promise is still reported.
    ({}, LoopState(), Iteration(0, last=True), EndLoop("stop", 0)),
    ({}, LoopState(), Iteration(3, promised=True, last=True), EndLoop("promise", 0)),
    ({}, LoopState(), Iteration(143, cut=CutReason.STOP, last=True), EndLoop("stop", 0)),
    ({"max_iterations": 1, "max_failures": 1}, LoopState(), Iteration(3, last=True), EndLoop("stop", 0)),
    ({}, LoopState(), Iteration(124, cut=CutReason.MAX_TIME, last=True), EndLoop("stop", 0)),
    # The time of the whole loop.
    ({}, LoopState(), Iteration(124, cut=CutReason.MAX_TIME), EndLoop("max-time", 124)),
    ({"max_iterations": 1}, LoopState(), Iteration(124, cut=CutReason.MAX_TIME), EndLoop("max-time", 124)),
    # A change outside, where that ends the loop: before any number that is reached.
    ({"on_leak": OnLeak.STOP}, LoopState(), Iteration(0, leaked=True), EndLoop("leak", 125)),
    ({"on_leak": OnLeak.STOP}, LoopState(), Iteration(3, leaked=True), EndLoop("leak", 125)),
    (
        {"on_leak": OnLeak.STOP, "max_iterations": 1},
        LoopState(),
        Iteration(0, leaked=True),
        EndLoop("leak", 125),
    ),
    ({"on_leak": OnLeak.STOP}, LoopState(), Iteration(0, promised=True, leaked=True), EndLoop("promise", 0)),
    ({"on_leak": OnLeak.STOP}, LoopState(), Iteration(0, last=True, leaked=True), EndLoop("stop", 0)),
    (
        {"on_leak": OnLeak.STOP},
        LoopState(),
        Iteration(124, cut=CutReason.MAX_TIME, leaked=True),
        EndLoop("max-time", 124),
    ),
    ({"on_leak": OnLeak.STOP}, LoopState(), Iteration(0), NextIteration(0.0)),
    ({"on_leak": OnLeak.REPORT}, LoopState(), Iteration(0, leaked=True), NextIteration(0.0)),
    ({"on_leak": OnLeak.REPORT}, LoopState(), Iteration(0, lost=True), EndLoop("leak", 125)),
    ({"on_leak": OnLeak.REPORT}, LoopState(), Iteration(0, promised=True, lost=True), EndLoop("promise", 0)),
    # Tokens and cost: in the middle of an iteration, or by its end.
    ({}, LoopState(), Iteration(124, cut=CutReason.MAX_TOKENS), EndLoop("max-tokens", 124)),
    ({}, LoopState(), Iteration(124, cut=CutReason.MAX_COST), EndLoop("max-cost", 124)),
    (
        {"max_iterations": 1, "max_failures": 1},
        LoopState(),
        Iteration(124, cut=CutReason.MAX_COST),
        EndLoop("max-cost", 124),
    ),
    ({}, LoopState(), Iteration(0, reached=CutReason.MAX_TOKENS), EndLoop("max-tokens", 0)),
    ({}, LoopState(), Iteration(3, reached=CutReason.MAX_COST), EndLoop("max-cost", 3)),
    ({"max_iterations": 1}, LoopState(), Iteration(0, reached=CutReason.MAX_COST), EndLoop("max-cost", 0)),
    (
        {},
        LoopState(),
        Iteration(124, cut=CutReason.IDLE_TIMEOUT, reached=CutReason.MAX_COST),
        EndLoop("max-cost", 124),
    ),
    ({}, LoopState(), Iteration(0, promised=True, reached=CutReason.MAX_COST), EndLoop("promise", 0)),
    ({}, LoopState(), Iteration(124, promised=True, cut=CutReason.MAX_TOKENS), EndLoop("promise", 0)),
    ({}, LoopState(), Iteration(0, last=True, reached=CutReason.MAX_COST), EndLoop("stop", 0)),
    ({}, LoopState(), LIMITED._replace(reached=CutReason.MAX_COST), EndLoop("max-cost", 1)),
    # It got SIGTERM long after its promise.
    ({}, LoopState(), Iteration(124, promised=True, cut=CutReason.AFTER_PROMISE), EndLoop("promise", 0)),
    # A usage limit, whatever other limits there are, but for those that ask for an end.
    ({"max_iterations": 1, "max_failures": 1, "max_stalls": 1}, LoopState(), LIMITED, RepeatIteration(90.0)),
    ({"delay": 7.0}, LoopState(3, 3, 3), LIMITED, RepeatIteration(90.0)),
    ({}, LoopState(), LIMITED._replace(cut=CutReason.IDLE_TIMEOUT), RepeatIteration(90.0)),
    ({}, LoopState(), LIMITED._replace(last=True), EndLoop("stop", 0)),
    ({}, LoopState(), LIMITED._replace(cut=CutReason.MAX_TIME), EndLoop("max-time", 124)),
    ({"on_leak": OnLeak.STOP}, LoopState(), LIMITED._replace(leaked=True), EndLoop("leak", 125)),
    ({}, LoopState(), Iteration(1, refused=UsageLimitRefusal(1e9)), RepeatIteration(86400.0)),
    # Failures in a row.
    ({"max_failures": 3}, LoopState(5, 1, 0), BAD, NextIteration(2.0)),
    ({"max_failures": 3}, LoopState(5, 2, 0), BAD, EndLoop("max-failures", 3)),
    ({"max_failures": 3}, LoopState(5, 2, 0), GOOD, NextIteration(0.0)),
    (
        {"max_failures": 1},
        LoopState(),
        Iteration(124, cut=CutReason.ITERATION_TIMEOUT),
        EndLoop("max-failures", 124),
    ),
    (
        {"max_failures": 1},
        LoopState(),
        Iteration(124, cut=CutReason.IDLE_TIMEOUT),
        EndLoop("max-failures", 124),
    ),
    ({"max_failures": 1, "max_iterations": 1}, LoopState(), BAD, EndLoop("max-failures", 3)),
    # Iterations, with the status of the last one.
    ({"max_iterations": 3}, LoopState(1, 0, 0), GOOD, NextIteration(0.0)),
    ({"max_iterations": 3}, LoopState(2, 0, 0), GOOD, EndLoop("max-iterations", 0)),
    ({"max_iterations": 3}, LoopState(2, 0, 0), BAD, EndLoop("max-iterations", 3)),
    (
        {"max_iterations": 3},
        LoopState(2, 0, 0),
        Iteration(124, cut=CutReason.IDLE_TIMEOUT),
        EndLoop("max-iterations", 124),
    ),
    (
        {"max_iterations": 3, "max_stalls": 1},
        LoopState(2),
        Iteration(0, changed=False),
        EndLoop("max-iterations", 0),
    ),
    # Stalls in a row.
    ({"max_stalls": 3}, LoopState(5, 0, 1), Iteration(0, changed=False), NextIteration(0.0)),
    ({"max_stalls": 3}, LoopState(5, 0, 2), Iteration(0, changed=False), EndLoop("max-stalls", 0)),
    ({"max_stalls": 3}, LoopState(5, 0, 2), Iteration(3, changed=False), EndLoop("max-stalls", 3)),
    ({"max_stalls": 3}, LoopState(5, 0, 2), Iteration(0, changed=None), NextIteration(0.0)),
    # No limit.
    ({}, LoopState(10**9, 0, 10**9), Iteration(0, changed=False), NextIteration(0.0)),
]


@pytest.mark.parametrize(("limits", "before", "iteration", "decision"), ENDS)
def test_what_follows_an_iteration(
    limits: dict[str, Any],
    before: LoopState,
    iteration: Iteration,
    decision: EndLoop | RepeatIteration | NextIteration,
) -> None:
    """Go on, or end: by what, and with which status."""
    settings = _settings(**limits)
    assert after(settings, before, iteration, settings.on_leak)[1] == decision


@pytest.mark.parametrize(
    ("failures", "pause"),
    [
        (0, 0.0),
        (1, 1.0),
        (2, 2.0),
        (3, 4.0),
        (4, 8.0),
        (5, 16.0),
        (6, 32.0),
        (7, 60.0),
        (8, 60.0),
        (5000, 60.0),
    ],
)
def test_failures_wait_longer_and_longer(failures: int, pause: float) -> None:
    """Doubled from one second up to a minute, on top of the delay that was asked for."""
    iteration = BAD if failures else GOOD
    _, decision = after(_settings(delay=0.5), LoopState(failures=failures - 1), iteration)
    assert decision == NextIteration(0.5 + pause)


@pytest.mark.parametrize(
    ("holds", "hold"),
    [(0, 30.0), (1, 60.0), (2, 120.0), (5, 960.0), (6, 1800.0), (7, 1800.0), (5000, 1800.0)],
)
@pytest.mark.parametrize("seconds", [None, 0.0, -5.0])
def test_refusals_without_a_time_wait_longer_and_longer(
    holds: int, hold: float, seconds: float | None
) -> None:
    """Doubled from half a minute up to half an hour; a time that has passed is none."""
    refused = Iteration(1, refused=UsageLimitRefusal(seconds))
    assert after(_settings(), LoopState(holds=holds), refused) == (
        LoopState(holds=holds + 1),
        RepeatIteration(hold),
    )


@given(st.lists(st.none() | st.floats(-1e9, 1e12)), st.integers(0, 9))
def test_refusals_are_never_counted(refusals: list[float | None], iterations: int) -> None:
    """However many there are: the counters stay as they are, and each wait has an end."""
    settings = _settings(max_iterations=1, max_failures=1, max_stalls=1)
    state = LoopState(iterations, 1, 1)
    for seconds in refusals:
        state, decision = after(settings, state, Iteration(1, refused=UsageLimitRefusal(seconds)))
        assert state[:3] == (iterations, 1, 1)
        assert isinstance(decision, RepeatIteration)
        assert 0 < decision.hold <= 86400


@given(
    st.lists(
        st.builds(
            Iteration,
            st.integers(0, 255),
            changed=st.sampled_from([True, False, None]),
            promised=st.just(False),
            cut=st.none(),
            last=st.just(False),
            lost=st.just(False),
            refused=st.none(),
            passing=st.booleans(),
            reached=st.none(),
            blocked=st.just(False),
            logged_out=st.just(""),
        )
    )
)
def test_a_limited_loop_ends(iterations: list[Iteration]) -> None:
    """Whatever its iterations are like, never later than at the limit, and only once."""
    state = LoopState()
    for number, iteration in enumerate(iterations, 1):
        state, decision = after(_settings(max_iterations=5, max_failures=3, max_stalls=2), state, iteration)
        assert state.iterations == number <= 5
        if isinstance(decision, EndLoop):
            assert decision.status == iteration.status
            break
        assert number < 5


PROMISED = Iteration(0, promised=True, changed=True)


@pytest.mark.parametrize(
    ("iteration", "ended_by"),
    [
        (PROMISED, "promise"),
        (PROMISED._replace(verified=True), "promise"),
        (PROMISED._replace(verified=False), None),
        (PROMISED._replace(verified=False, last=True), "stop"),
        (PROMISED._replace(verified=False, cut=CutReason.MAX_TIME), "max-time"),
        (PROMISED._replace(verified=False, lost=True), "leak"),
        (GOOD._replace(verified=True), None),
        (GOOD._replace(verified=False), None),
    ],
)
def test_a_promise_counts_unless_the_gate_fails(iteration: Iteration, ended_by: str | None) -> None:
    """And a gate that passes is no promise."""
    _, decision = after(_settings(), LoopState(), iteration)
    assert (decision.ended_by if isinstance(decision, EndLoop) else None) == ended_by


@pytest.mark.parametrize(
    ("iteration", "promises", "each"),
    [
        (PROMISED, True, True),
        (PROMISED._replace(changed=False), True, True),
        (PROMISED._replace(cut=CutReason.AFTER_PROMISE, status=124), True, True),
        (PROMISED._replace(cut=CutReason.STOP), False, False),
        (PROMISED._replace(lost=True), False, False),
        (GOOD, False, True),
        (BAD, False, True),
        (GOOD._replace(changed=None), False, True),
        (GOOD._replace(changed=False), False, False),
        (GOOD._replace(cut=CutReason.ITERATION_TIMEOUT, changed=None), False, True),
        (GOOD._replace(cut=CutReason.MAX_COST), False, False),
        (GOOD._replace(cut=CutReason.SIGNAL), False, False),
        (LIMITED, False, False),
    ],
)
def test_what_needs_the_gate(iteration: Iteration, *, promises: bool, each: bool) -> None:
    """Promises, and with --verify-each whatever may have changed something."""
    assert needs_gate(_settings(verify="make test"), iteration) is promises
    assert needs_gate(_settings(verify="make test", verify_each=True), iteration) is each
    assert not needs_gate(_settings(verify_each=True), iteration)


@pytest.mark.parametrize("also", [{}, {"promised": True}, {"last": True}, {"cut": CutReason.MAX_TIME}])
def test_an_agent_that_needs_a_person_ends_the_loop(also: dict[str, Any]) -> None:
    """Whatever else it says, or a limit wants."""
    iteration = GOOD._replace(blocked=True, **also)
    _, decision = after(_settings(verify="make test"), LoopState(), iteration)
    assert decision == EndLoop("blocked", 75)
    assert not needs_gate(_settings(verify="make test"), iteration)


def test_an_agent_without_a_login_ends_the_loop() -> None:
    """Before any count of failures; a request to stop comes first."""
    iteration = GOOD._replace(status=1, logged_out="Please log in")
    assert after(_settings(max_failures=9), LoopState(), iteration)[1] == EndLoop("not-logged-in", 77)
    assert after(_settings(), LoopState(), iteration._replace(last=True))[1] == EndLoop("stop", 0)
