"""Tokens and cost of a session, as its agent reports them, and their limits: pure functions.

There is no table of prices. Some agents report the cost of an iteration only at its end. Until then the
tokens count at the price of the iterations before.
"""

from __future__ import annotations

from typing import NamedTuple

from ralph_wrap.agents.output import Usage
from ralph_wrap.config import LoopLimits
from ralph_wrap.config.settings import AgentInvocation
from ralph_wrap.loop.policy import CutReason

_LEAST = 0.0001  # the smallest cost limit for an agent, in US dollars; no agent accepts 0


class TotalUsage(NamedTuple):
    """Tokens and cost so far.

    Attributes:
        tokens: tokens of all iterations.
        cost: the reported cost, in US dollars.
        priced: tokens of the iterations with a reported cost.

    """

    tokens: int = 0
    cost: float = 0.0
    priced: int = 0

    @property
    def estimate(self) -> float:
        """The cost in US dollars, with an estimate for unreported iterations; 0 before the first report."""
        unpriced = self.tokens - self.priced
        return self.cost + (unpriced * self.cost / self.priced if self.priced else 0.0)

    def and_(self, spent: Usage | None) -> TotalUsage:
        """Return the sum of this and one more iteration."""
        if spent is None:
            return self
        if spent.cost is None:
            return self._replace(tokens=self.tokens + spent.tokens)
        return TotalUsage(self.tokens + spent.tokens, self.cost + spent.cost, self.priced + spent.tokens)


def reached(limits: LoopLimits, spending: TotalUsage) -> CutReason | None:
    """Return the limit that is reached, ``None`` if there is none."""
    if limits.max_tokens and spending.tokens >= limits.max_tokens:
        return CutReason.MAX_TOKENS
    if limits.max_cost and spending.estimate >= limits.max_cost:
        return CutReason.MAX_COST
    return None


def capped(
    limits: LoopLimits, invocation: AgentInvocation, command: tuple[str, ...], spending: TotalUsage
) -> tuple[str, ...]:
    """Return the agent's command with the options that the limits need.

    For a limit, the agent reports its tokens after each turn. Its own cost option gets the rest of the limit.
    """
    words: list[str] = []
    if limits.max_cost or limits.max_tokens:
        words += [word for word in invocation.metering if word not in command]
    if limits.max_cost:
        left = f"{max(limits.max_cost - spending.estimate, _LEAST):.4f}"
        words += [word.replace("{left}", left) for word in invocation.budget]
    end = command.index("--") if "--" in command else len(command)
    return (*command[:end], *words, *command[end:])


def without_effect(limits: LoopLimits, spent: Usage | None) -> str:
    """Return the options that have no effect, because the agent does not report what they limit."""
    tokens = limits.max_tokens and (spent is None or not spent.tokens)
    unpriced = spent is None or spent.cost is None
    blind = {"--max-tokens": tokens, "--max-cost": limits.max_cost and unpriced}
    return " and ".join(name for name, is_blind in blind.items() if is_blind)
