"""The agent's own session, which the next iteration takes up (``resume = true``).

An agent names it while it works. What it names goes into its command line, so it must look like a name. One
that an agent fails with is not tried again: it may be gone, or too long by now, and would fail for ever.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ralph_wrap.config import Settings
    from ralph_wrap.loop.policy import Iteration
    from ralph_wrap.system.log import Log

_NAME = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"
)  # no option; ids of those agents are UUIDs and the like


class Resumption:
    """Knows the session that the agent's next iteration takes up.

    Arguments:
        settings: whether that is wanted, and the words for the agent's command.
        log: told, once, if the agent cannot do that.

    Attributes:
        session: its name; empty while there is none.

    """

    def __init__(self, settings: Settings, log: Log) -> None:
        self._command = settings.command
        self._words = settings.manner.resume
        self._log = log
        self._is_wanted = settings.resume
        self.session = ""
        if settings.resume and not self._words:
            self._give_up(f"{settings.agent or settings.command[0]} is not known to take up its own session")

    def command(self) -> tuple[str, ...]:
        """Return the agent's command, with what takes up its session."""
        if not self.session:
            return self._command
        words = tuple(word.replace("{session}", self.session) for word in self._words)
        end = len(self._command)
        if not words[0].startswith("-"):  # a command of the agent's own, which comes before what it is to do
            end = next((place for place, word in enumerate(self._command) if "{prompt" in word), end)
        if "--" in self._command:
            end = min(end, self._command.index("--"))
        return (*self._command[:end], *words, *self._command[end:])

    def note(self, iteration: Iteration, named: str) -> None:
        """Take note of how an iteration has ended.

        Arguments:
            iteration: as it was judged.
            named: the session that the agent has named in it; empty if none.

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
                f"the agent has failed with its own session {taken_up}: the next iteration begins a new one",
            )

    def _give_up(self, reason: str) -> None:
        self._is_wanted = False
        self._log.warning("resume.ignored", f"no effect: resume; {reason}", "each iteration begins a new one")
