"""The agent's own session, which the next iteration continues (``resume = true``).

An agent prints the name of its session while it works. The name goes into the next command line, so it must
look like a name. If an agent fails with a session, the loop does not use this session again. It may be
deleted or too long, and every further iteration would fail.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ralph_wrap.config import AgentSettings
    from ralph_wrap.loop.policy import Iteration
    from ralph_wrap.system.log import Log

_NAME = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"
)  # must not begin like an option; these agents use UUIDs and similar ids


class AgentResume:
    """Remembers the agent's own session for the next iteration.

    Arguments:
        agent: the option ``resume``, and the agent's options to continue a session.
        log: gets one warning if the agent cannot continue sessions.

    Attributes:
        session: its name; empty while there is none.

    """

    def __init__(self, agent: AgentSettings, log: Log) -> None:
        self._command = agent.command
        self._words = agent.invocation.resume
        self._log = log
        self._is_wanted = agent.resume
        self.session = ""
        if agent.resume and not self._words:
            name = agent.agent or agent.command[0]
            self._give_up(f"{name} has no known option to continue its own session")

    def command(self) -> tuple[str, ...]:
        """Return the agent's command, with the options to continue its session."""
        if not self.session:
            return self._command
        words = tuple(word.replace("{session}", self.session) for word in self._words)
        end = len(self._command)
        if not words[0].startswith("-"):  # a subcommand of the agent, which comes before the prompt
            end = next((index for index, word in enumerate(self._command) if "{prompt" in word), end)
        if "--" in self._command:
            end = min(end, self._command.index("--"))
        return (*self._command[:end], *words, *self._command[end:])

    def note(self, iteration: Iteration, named: str) -> None:
        """Record the end of an iteration.

        Arguments:
            iteration: its final result.
            named: the session that the agent named in it; empty if none.

        """
        if not self._is_wanted or iteration.refused is not None:
            return
        taken_up = self.session
        if _NAME.fullmatch(named):
            self.session = named
        elif not taken_up and iteration.status == 0:
            self._give_up("the agent does not name its own session")
            return
        if taken_up and iteration.failed and iteration.cut is None and not iteration.passing:
            self.session = ""
            self._log.warning(
                "resume.failed",
                f"the agent failed with its own session {taken_up}: the next iteration begins a new one",
            )

    def _give_up(self, reason: str) -> None:
        self._is_wanted = False
        self._log.warning("resume.ignored", f"no effect: resume; {reason}", "each iteration begins a new one")
