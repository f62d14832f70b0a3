"""What follows an iteration: a table of everything that can come before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.config import OnLeak, Settings
from ralph_wrap.loop.policy import Again, Cut, End, GoOn, Iteration, Refusal, State, after

GOOD = Iteration(0, changed=True)
BAD = Iteration(3, changed=True)
LIMITED = Iteration(1, refused=Refusal(90.0))
UNTIMED = Iteration(1, refused=Refusal())


def _settings(**limits: Any) -> Settings:
    """Return settings without any limit but the given ones."""
    unlimited = {"max_iterations": 0, "max_failures": 0, "max_stalls": 0}
    return Settings(project=Path("/x"), command=("agent",), **{**unlimited, **limits})


STATES = [
    (State(), GOOD, State(1, 0, 0)),
    (State(4, 2, 3), GOOD, State(5, 0, 0)),
    (State(4, 2, 3), BAD, State(5, 3, 0)),
    (State(4, 2, 3), Iteration(0, changed=False), State(5, 0, 4)),
    (State(4, 2, 3), Iteration(3, changed=False), State(5, 3, 4)),
    (State(4, 2, 3), Iteration(0, changed=None), State(5, 0, 0)),
    (State(4, 2, 3), Iteration(3, promised=True, changed=True), State(5, 0, 0)),
    (State(4, 2, 3), Iteration(124, changed=True, cut=Cut.IDLE_TIMEOUT), State(5, 3, 0)),
    (State(4, 2, 3), Iteration(124, changed=True, cut=Cut.ITERATION_TIMEOUT), State(5, 3, 0)),
    # Refused: not counted at all, and the next one that is counted goes on where it was.
    (State(4, 2, 3), LIMITED, State(4, 2, 3)),
    (State(4, 2, 3, 5), LIMITED, State(4, 2, 3)),
    (State(4, 2, 3), UNTIMED, State(4, 2, 3, 1)),
    (State(4, 2, 3, 1), UNTIMED, State(4, 2, 3, 2)),
    (State(4, 2, 3, 1), Iteration(1, refused=Refusal(-1.0)), State(4, 2, 3, 2)),
    (State(4, 2, 3, 1), GOOD, State(5, 0, 0)),
    # The network: a failure, but whether the work goes on nobody knows.
    (State(4, 2, 3), Iteration(1, changed=True, passing=True), State(5, 3, 3)),
    (State(4, 2, 3), Iteration(1, changed=False, passing=True), State(5, 3, 3)),
]


@pytest.mark.parametrize(("before", "iteration", "then"), STATES)
def test_an_iteration_is_counted(before: State, iteration: Iteration, then: State) -> None:
    """Failures and stalls are counted in a row; a kept promise is no failure, whatever its status."""
    assert after(_settings(), before, iteration)[0] == then


ENDS: list[tuple[dict[str, Any], State, Iteration, End | Again | GoOn]] = [
    # A kept promise ends the loop well, whatever else is true.
    ({}, State(), Iteration(0, promised=True), End("promise", 0)),
    ({}, State(), Iteration(3, promised=True), End("promise", 0)),
    ({"max_iterations": 1, "max_failures": 1}, State(), Iteration(3, promised=True), End("promise", 0)),
    ({}, State(), Iteration(124, promised=True, cut=Cut.MAX_TIME), End("promise", 0)),
    # Somebody has asked for no further iteration: nothing else counts, but a kept promise is still told.
    ({}, State(), Iteration(0, last=True), End("stop", 0)),
    ({}, State(), Iteration(3, promised=True, last=True), End("promise", 0)),
    ({}, State(), Iteration(143, cut=Cut.STOP, last=True), End("stop", 0)),
    ({"max_iterations": 1, "max_failures": 1}, State(), Iteration(3, last=True), End("stop", 0)),
    ({}, State(), Iteration(124, cut=Cut.MAX_TIME, last=True), End("stop", 0)),
    # The time of the whole loop.
    ({}, State(), Iteration(124, cut=Cut.MAX_TIME), End("max-time", 124)),
    ({"max_iterations": 1}, State(), Iteration(124, cut=Cut.MAX_TIME), End("max-time", 124)),
    # A change outside, where that ends the loop: before any number that is reached.
    ({"on_leak": OnLeak.STOP}, State(), Iteration(0, leaked=True), End("leak", 125)),
    ({"on_leak": OnLeak.STOP}, State(), Iteration(3, leaked=True), End("leak", 125)),
    ({"on_leak": OnLeak.STOP, "max_iterations": 1}, State(), Iteration(0, leaked=True), End("leak", 125)),
    ({"on_leak": OnLeak.STOP}, State(), Iteration(0, promised=True, leaked=True), End("promise", 0)),
    ({"on_leak": OnLeak.STOP}, State(), Iteration(0, last=True, leaked=True), End("stop", 0)),
    ({"on_leak": OnLeak.STOP}, State(), Iteration(124, cut=Cut.MAX_TIME, leaked=True), End("max-time", 124)),
    ({"on_leak": OnLeak.STOP}, State(), Iteration(0), GoOn(0.0)),
    ({"on_leak": OnLeak.REPORT}, State(), Iteration(0, leaked=True), GoOn(0.0)),
    # Tokens and cost: in the middle of an iteration, or by its end.
    ({}, State(), Iteration(124, cut=Cut.MAX_TOKENS), End("max-tokens", 124)),
    ({}, State(), Iteration(124, cut=Cut.MAX_COST), End("max-cost", 124)),
    (
        {"max_iterations": 1, "max_failures": 1},
        State(),
        Iteration(124, cut=Cut.MAX_COST),
        End("max-cost", 124),
    ),
    ({}, State(), Iteration(0, reached=Cut.MAX_TOKENS), End("max-tokens", 0)),
    ({}, State(), Iteration(3, reached=Cut.MAX_COST), End("max-cost", 3)),
    ({"max_iterations": 1}, State(), Iteration(0, reached=Cut.MAX_COST), End("max-cost", 0)),
    ({}, State(), Iteration(124, cut=Cut.IDLE_TIMEOUT, reached=Cut.MAX_COST), End("max-cost", 124)),
    ({}, State(), Iteration(0, promised=True, reached=Cut.MAX_COST), End("promise", 0)),
    ({}, State(), Iteration(124, promised=True, cut=Cut.MAX_TOKENS), End("promise", 0)),
    ({}, State(), Iteration(0, last=True, reached=Cut.MAX_COST), End("stop", 0)),
    ({}, State(), LIMITED._replace(reached=Cut.MAX_COST), End("max-cost", 1)),
    # It was told to end long after its promise.
    ({}, State(), Iteration(124, promised=True, cut=Cut.AFTER_PROMISE), End("promise", 0)),
    # A usage limit, whatever other limits there are, but for those that ask for an end.
    ({"max_iterations": 1, "max_failures": 1, "max_stalls": 1}, State(), LIMITED, Again(90.0)),
    ({"delay": 7.0}, State(3, 3, 3), LIMITED, Again(90.0)),
    ({}, State(), LIMITED._replace(cut=Cut.IDLE_TIMEOUT), Again(90.0)),
    ({}, State(), LIMITED._replace(last=True), End("stop", 0)),
    ({}, State(), LIMITED._replace(cut=Cut.MAX_TIME), End("max-time", 124)),
    ({"on_leak": OnLeak.STOP}, State(), LIMITED._replace(leaked=True), End("leak", 125)),
    ({}, State(), Iteration(1, refused=Refusal(1e9)), Again(86400.0)),
    # Failures in a row.
    ({"max_failures": 3}, State(5, 1, 0), BAD, GoOn(2.0)),
    ({"max_failures": 3}, State(5, 2, 0), BAD, End("max-failures", 3)),
    ({"max_failures": 3}, State(5, 2, 0), GOOD, GoOn(0.0)),
    ({"max_failures": 1}, State(), Iteration(124, cut=Cut.ITERATION_TIMEOUT), End("max-failures", 124)),
    ({"max_failures": 1}, State(), Iteration(124, cut=Cut.IDLE_TIMEOUT), End("max-failures", 124)),
    ({"max_failures": 1, "max_iterations": 1}, State(), BAD, End("max-failures", 3)),
    # Iterations, with the status of the last one.
    ({"max_iterations": 3}, State(1, 0, 0), GOOD, GoOn(0.0)),
    ({"max_iterations": 3}, State(2, 0, 0), GOOD, End("max-iterations", 0)),
    ({"max_iterations": 3}, State(2, 0, 0), BAD, End("max-iterations", 3)),
    ({"max_iterations": 3}, State(2, 0, 0), Iteration(124, cut=Cut.IDLE_TIMEOUT), End("max-iterations", 124)),
    ({"max_iterations": 3, "max_stalls": 1}, State(2), Iteration(0, changed=False), End("max-iterations", 0)),
    # Stalls in a row.
    ({"max_stalls": 3}, State(5, 0, 1), Iteration(0, changed=False), GoOn(0.0)),
    ({"max_stalls": 3}, State(5, 0, 2), Iteration(0, changed=False), End("max-stalls", 0)),
    ({"max_stalls": 3}, State(5, 0, 2), Iteration(3, changed=False), End("max-stalls", 3)),
    ({"max_stalls": 3}, State(5, 0, 2), Iteration(0, changed=None), GoOn(0.0)),
    # No limit.
    ({}, State(10**9, 0, 10**9), Iteration(0, changed=False), GoOn(0.0)),
]


@pytest.mark.parametrize(("limits", "before", "iteration", "decision"), ENDS)
def test_what_follows_an_iteration(
    limits: dict[str, Any], before: State, iteration: Iteration, decision: End | Again | GoOn
) -> None:
    """Go on, or end: by what, and with which status."""
    assert after(_settings(**limits), before, iteration)[1] == decision


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
    _, decision = after(_settings(delay=0.5), State(failures=failures - 1), iteration)
    assert decision == GoOn(0.5 + pause)


@pytest.mark.parametrize(
    ("holds", "hold"),
    [(0, 30.0), (1, 60.0), (2, 120.0), (5, 960.0), (6, 1800.0), (7, 1800.0), (5000, 1800.0)],
)
@pytest.mark.parametrize("seconds", [None, 0.0, -5.0])
def test_refusals_without_a_time_wait_longer_and_longer(
    holds: int, hold: float, seconds: float | None
) -> None:
    """Doubled from half a minute up to half an hour; a time that has passed is none."""
    refused = Iteration(1, refused=Refusal(seconds))
    assert after(_settings(), State(holds=holds), refused) == (State(holds=holds + 1), Again(hold))


@given(st.lists(st.none() | st.floats(-1e9, 1e12)), st.integers(0, 9))
def test_refusals_are_never_counted(refusals: list[float | None], iterations: int) -> None:
    """However many there are: what is counted stays as it is, and each wait has an end."""
    settings = _settings(max_iterations=1, max_failures=1, max_stalls=1)
    state = State(iterations, 1, 1)
    for seconds in refusals:
        state, decision = after(settings, state, Iteration(1, refused=Refusal(seconds)))
        assert state[:3] == (iterations, 1, 1)
        assert isinstance(decision, Again)
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
            refused=st.none(),
            passing=st.booleans(),
            reached=st.none(),
        )
    )
)
def test_a_limited_loop_ends(iterations: list[Iteration]) -> None:
    """Whatever its iterations are like, never later than at the limit, and only once."""
    state = State()
    for number, iteration in enumerate(iterations, 1):
        state, decision = after(_settings(max_iterations=5, max_failures=3, max_stalls=2), state, iteration)
        assert state.iterations == number <= 5
        if isinstance(decision, End):
            assert decision.status == iteration.status
            break
        assert number < 5
