"""What a session has spent, as its agent reports it, and when that is too much: pure.

There is no table of prices. Where an agent tells the cost of an iteration at its end only, its tokens cost
until then what those of the iterations before have cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.loop.policy import Cut

if TYPE_CHECKING:
    from ralph_wrap.agents.output import Spent
    from ralph_wrap.config import Settings

_LEAST = 0.0001  # US dollars that an agent is left; none of them takes 0 for an amount


class Spending(NamedTuple):
    """What was spent so far.

    Attributes:
        tokens: of all iterations.
        cost: that was reported, in US dollars.
        priced: tokens of the iterations whose cost was reported.

    """

    tokens: int = 0
    cost: float = 0.0
    priced: int = 0

    @property
    def estimate(self) -> float:
        """The cost in US dollars, with what is not reported yet, or was never: nothing before any was."""
        unpriced = self.tokens - self.priced
        return self.cost + (unpriced * self.cost / self.priced if self.priced else 0.0)

    def and_(self, spent: Spent | None) -> Spending:
        """Return this and what was spent in one more iteration."""
        if spent is None:
            return self
        if spent.cost is None:
            return self._replace(tokens=self.tokens + spent.tokens)
        return Spending(self.tokens + spent.tokens, self.cost + spent.cost, self.priced + spent.tokens)


def reached(settings: Settings, spending: Spending) -> Cut | None:
    """Return the limit that is reached."""
    if settings.max_tokens and spending.tokens >= settings.max_tokens:
        return Cut.MAX_TOKENS
    if settings.max_cost and spending.estimate >= settings.max_cost:
        return Cut.MAX_COST
    return None


def capped(settings: Settings, command: tuple[str, ...], spending: Spending) -> tuple[str, ...]:
    """Return the agent's command with its own cap on what is left, if there is a limit and it has one."""
    if not settings.max_cost:
        return command
    left = f"{max(settings.max_cost - spending.estimate, _LEAST):.4f}"
    return (*command, *(word.replace("{left}", left) for word in settings.manner.budget))


def without_effect(settings: Settings, spent: Spent | None) -> str:
    """Return the options that cannot hold: the agent has not reported what they limit."""
    tokens = settings.max_tokens and (spent is None or not spent.tokens)
    cost = settings.max_cost and (spent is None or spent.cost is None)
    return " and ".join(
        name for name, is_blind in (("--max-tokens", tokens), ("--max-cost", cost)) if is_blind
    )
