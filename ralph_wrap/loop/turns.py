"""The agents of one session: the first one, and those that go on while its usage limit holds (``fallback``).

Before each iteration the first agent without a limit gets the turn. So the loop returns to the first one as
soon as its limit is over. Each has its own command, environment, account, conversation and login. What counts
for the session is counted for all of them together: iterations, failures, tokens, cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ralph_wrap import agents
from ralph_wrap.agents.output import Usage
from ralph_wrap.config import AgentSettings
from ralph_wrap.errors import AgentError
from ralph_wrap.loop.conversation import AgentConversation
from ralph_wrap.loop.login_watch import LoginWatch
from ralph_wrap.loop.policy import Iteration
from ralph_wrap.loop.usage_limit import AgentAccount
from ralph_wrap.loop.usage_limit_wait import UsageLimitWait, clock
from ralph_wrap.system.log import get_logger

log = get_logger()


class LoopAgent:
    """One agent of a session.

    Arguments:
        settings: its command, and how it takes the prompt.
        environ: of the session.
        limits: the directory of the shared files of usage limits.

    Attributes:
        settings: as above.
        environ: its environment, with the variables of its configuration.
        conversation: its own session.
        login: hears what it says of its login.
        account: knows its usage limit.
        holds: refusals in a row without an end time; see ``LoopState``.
        is_set_aside: it is not logged in, and gets no turn any more.
        iterations: that it has done.
        spent: tokens and cost that it has reported; ``None`` if nothing.

    """

    def __init__(self, settings: AgentSettings, environ: Mapping[str, str], limits: Path) -> None:
        self.settings = settings
        self.environ = {**environ, **dict(settings.invocation.env)}
        self.conversation = AgentConversation(settings)
        self.login = LoginWatch(agents.of_command(settings.command, settings.agent))
        self.account = AgentAccount(limits, settings.agent, self.environ)
        self.holds = 0
        self.is_set_aside = False
        self.iterations = 0
        self.spent: Usage | None = None

    @property
    def name(self) -> str:
        """Its name, or its program."""
        return self.settings.agent or self.settings.command[0]

    def count(self, iteration: Iteration, spent: Usage | None) -> None:
        """Note what it has done; a refused iteration is none, but may have cost something."""
        self.iterations += iteration.refused is None and not iteration.logged_out
        if spent is not None:
            before = self.spent or Usage(0)
            costs = [usage.cost for usage in (before, spent) if usage.cost is not None]
            self.spent = Usage(before.tokens + spent.tokens, sum(costs) if costs else None)


class Turns:
    """Decides which agent of a session works.

    Arguments:
        first: settings of the session.
        environ: of the session.
        limits: the directory of the shared files of usage limits.

    Attributes:
        now: the agent that works, or has worked last.

    """

    def __init__(self, first: AgentSettings, environ: Mapping[str, str], limits: Path) -> None:
        self._agents = [LoopAgent(first, environ, limits)]
        self._news = ""
        self.now = self._agents[0]
        for choice in first.others:
            settings = first._replace(
                agent=choice.agent,
                command=choice.command,
                invocation=choice.invocation,
                conversation="",
            )
            try:
                agents.look_up(choice.command, {**environ, **dict(choice.invocation.env)})
            except AgentError as error:
                log.warning(
                    "fallback.ignored", f"no effect: fallback {choice.agent}: {error.message}", error.hint
                )
                continue
            self._agents.append(LoopAgent(settings, environ, limits))

    @property
    def all(self) -> tuple[LoopAgent, ...]:
        """All agents, the first one first."""
        return tuple(self._agents)

    @property
    def has_others(self) -> bool:
        """Whether more than one agent can have the turn."""
        return len(self._agents) > 1

    @property
    def instead(self) -> str:
        """The name of the agent that works in place of the first one; empty if the first one works."""
        return "" if self.now is self._agents[0] else self.now.name

    def choose(self, waits: Mapping[str, UsageLimitWait], number: int) -> tuple[float, UsageLimitWait]:
        """Give the turn to the first agent without a usage limit.

        Arguments:
            waits: by the name of each agent.
            number: of the next iteration, for the message.

        Returns:
            The time at which the first of the limits ends, in seconds since the epoch, and what waits for it;
            the time is 0 if the agent can work at once.

        """
        ends: list[tuple[float, LoopAgent]] = []
        for agent in self._agents:
            if agent.is_set_aside:
                continue
            if not (until := waits[agent.name].until):
                self._change(agent, number, ends)
                return 0.0, waits[agent.name]
            ends.append((until, agent))
        until, agent = min(ends, key=lambda end: end[0])
        return until, waits[agent.name]

    def take_news(self) -> str:
        """Return once which agent goes on, for a notification; empty if the turn has not changed."""
        news, self._news = self._news, ""
        return news

    def set_aside(self, iteration: Iteration) -> bool:
        """Return whether an iteration failed only because an agent that is not the first is not logged in.

        It gets no turn any more, and the iteration is repeated.
        """
        if not iteration.logged_out or not self.instead or iteration.leaked or iteration.lost:
            return False
        self.now.is_set_aside = True
        return True

    def report(self) -> tuple[dict[str, Any], ...] | None:
        """Return what each agent has done, for the report; ``None`` if the session has only one."""
        if not self.has_others:
            return None
        worked = [agent for agent in self._agents if agent.iterations or agent.spent]
        return tuple(
            {
                "agent": agent.name,
                "iterations": agent.iterations,
                "tokens": agent.spent.tokens if agent.spent else None,
                "cost_usd": agent.spent.cost if agent.spent else None,
            }
            for agent in worked
        )

    def _change(self, agent: LoopAgent, number: int, ends: Sequence[tuple[float, LoopAgent]]) -> None:
        if agent is self.now:
            return
        before, self.now = self.now, agent
        if ends:
            until, limited = ends[0]
            message = (
                f"the usage limit of {limited.name} is reached until {clock(until)}:"
                f" iteration {number} goes on with {agent.name}"
            )
        else:
            message = f"iteration {number} goes on with {agent.name}"
        self._news = message
        log.event(
            "agent.changed",
            message,
            iteration=number,
            agent=agent.name,
            before=before.name,
            until=ends[0][0] if ends else None,
        )
