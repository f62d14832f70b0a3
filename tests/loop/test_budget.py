"""What a session has spent, and when that is too much."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.agents.output import Usage
from ralph_wrap.config import LoopLimits
from ralph_wrap.config.settings import AgentInvocation
from ralph_wrap.loop.budget import TotalUsage, capped, reached, without_effect
from ralph_wrap.loop.policy import CutReason

CAP = ("--cap", "{left}")


INVOCATION = AgentInvocation(budget=CAP)


def _after(*iterations: Usage | None) -> TotalUsage:
    spending = TotalUsage()
    for spent in iterations:
        spending = spending.and_(spent)
    return spending


@pytest.mark.parametrize(
    ("iterations", "tokens", "estimate"),
    [
        ([], 0, 0.0),
        ([None], 0, 0.0),
        ([Usage(100, 0.5)], 100, 0.5),
        ([Usage(100, 0.5), Usage(300, 1.0)], 400, 1.5),
        # No price is known before an iteration has reported one.
        ([Usage(100)], 100, 0.0),
        ([Usage(100), Usage(100)], 200, 0.0),
        # From then on each token has it, also those before.
        ([Usage(100, 0.5), Usage(50)], 150, 0.75),
        ([Usage(100), Usage(100, 0.5)], 200, 1.0),
        ([Usage(0, 0.5), Usage(50)], 50, 0.5),
        ([Usage(100, 0.0), Usage(50)], 150, 0.0),
    ],
)
def test_what_was_spent(iterations: list[Usage | None], tokens: int, estimate: float) -> None:
    """What was reported, and for other tokens what those have cost."""
    spending = _after(*iterations)
    assert spending.tokens == tokens
    assert spending.estimate == pytest.approx(estimate)


@pytest.mark.parametrize(
    ("limits", "spent", "limit"),
    [
        ({}, Usage(10**9, 10.0**6), None),
        ({"max_tokens": 100}, Usage(99, 9.0), None),
        ({"max_tokens": 100}, Usage(100, 9.0), CutReason.MAX_TOKENS),
        ({"max_cost": 0.5}, Usage(100, 0.49), None),
        ({"max_cost": 0.5}, Usage(100, 0.5), CutReason.MAX_COST),
        ({"max_cost": 0.5, "max_tokens": 100}, Usage(100, 0.5), CutReason.MAX_TOKENS),
    ],
)
def test_a_limit_is_reached(limits: dict[str, Any], spent: Usage, limit: CutReason | None) -> None:
    """When that much was spent, not when more was."""
    assert reached(LoopLimits(**limits), _after(spent)) is limit


@pytest.mark.parametrize(
    ("limit", "spending", "words"),
    [
        (0.0, TotalUsage(), ()),
        (2.0, TotalUsage(), ("--cap", "2.0000")),
        (2.0, TotalUsage(100, 0.5, 100), ("--cap", "1.5000")),
        (2.0, TotalUsage(200, 0.5, 100), ("--cap", "1.0000")),
        (2.0, TotalUsage(100, 1.99999, 100), ("--cap", "0.0001")),
    ],
)
def test_an_agent_is_given_the_rest_of_the_budget(
    limit: float, spending: TotalUsage, words: tuple[str, ...]
) -> None:
    """By its own words; nothing without a limit, and never nothing."""
    assert capped(LoopLimits(max_cost=limit), INVOCATION, ("agent", "-p"), spending) == (
        "agent",
        "-p",
        *words,
    )


@pytest.mark.parametrize(
    ("limits", "command", "given"),
    [
        ({}, "agent -p", "agent -p"),
        ({"max_tokens": 1}, "agent -p", "agent -p --meter"),
        ({"max_cost": 1.0}, "agent -p", "agent -p --meter --cap 1.0000"),
        ({"max_cost": 1.0}, "agent --meter -p", "agent --meter -p --cap 1.0000"),
        ({"max_cost": 1.0}, "agent -p -- {prompt}", "agent -p --meter --cap 1.0000 -- {prompt}"),
    ],
)
def test_an_agent_reports_each_turn_if_there_is_a_limit(
    limits: dict[str, Any], command: str, given: str
) -> None:
    """Only then, once, and before the words that are no options."""
    invocation = AgentInvocation(budget=CAP, metering=("--meter",))
    words = capped(LoopLimits(**limits), invocation, tuple(command.split()), TotalUsage())
    assert words == tuple(given.split())


@pytest.mark.parametrize(
    ("limits", "spent", "options"),
    [
        ({}, None, ""),
        ({"max_cost": 1.0, "max_tokens": 1}, Usage(5, 0.0), ""),
        ({"max_cost": 1.0, "max_tokens": 1}, Usage(5), "--max-cost"),
        ({"max_cost": 1.0, "max_tokens": 1}, Usage(0, 1.0), "--max-tokens"),
        ({"max_cost": 1.0, "max_tokens": 1}, None, "--max-tokens and --max-cost"),
    ],
)
def test_limits_of_unreported_costs(limits: dict[str, Any], spent: Usage | None, options: str) -> None:
    """They are named."""
    assert without_effect(LoopLimits(**limits), spent) == options


@given(
    st.lists(
        st.builds(
            Usage, st.integers(0, 10**15), st.none() | st.floats(0, 10**6, allow_subnormal=False), st.just(1)
        )
    )
)
def test_an_estimate_is_never_less_than_what_was_reported(iterations: list[Usage]) -> None:
    """And a number, whatever was reported."""
    spending = _after(*iterations)
    assert spending.cost <= spending.estimate < float("inf")
