"""Notice that an agent is not logged in, by signs that the agent alone can give.

These are an error of its stream, its exit status, and the last words of its stderr. A prompt, a tool or a
project can print the same words, but not there: their output is inside the stream, or in the middle.
"""

from __future__ import annotations

import re

from ralph_wrap.agents import Agent
from ralph_wrap.agents.definition import AgentLogin
from ralph_wrap.agents.output import AgentFailure, UsageLimitReached
from ralph_wrap.agents.output.transcript import shortened
from ralph_wrap.system.text import readable

_REMEMBERED = 4096  # bytes at the end of stderr


class LoginWatch:
    """Hears what an agent says of its login.

    Arguments:
        agent: which agent works; ``None`` if it is not known, then only its stream counts.

    """

    def __init__(self, agent: Agent | None) -> None:
        self._login = agent.login if agent else AgentLogin()
        self._stderr = b""

    @property
    def command(self) -> str:
        """The command that logs a user in; empty if it is not known."""
        return self._login.command

    def begin(self) -> None:
        """Forget what the last iteration has said."""
        self._stderr = b""

    def hear(self, piece: bytes) -> None:
        """Take a piece of the agent's stderr."""
        self._stderr = (self._stderr + piece)[-_REMEMBERED:]

    def complaint(self, status: int, failure: UsageLimitReached | AgentFailure | None) -> str:
        """Return what an agent says of its missing login; empty if that is not why it ended.

        Arguments:
            status: exit status of the agent.
            failure: the final error of its stream; ``None`` if it has none.

        """
        if isinstance(failure, UsageLimitReached):
            return ""
        if failure is not None:
            is_one = failure.logged_out or self._is_one(failure.message)
            return (shortened(failure.message) or "no reason is given") if is_one else ""
        text = self._stderr.decode(errors="replace")
        lines = [line for line in (readable(line).strip() for line in text.split("\n")) if line] or [""]
        if status in self._login.statuses:
            said = next(filter(self._is_one, lines), lines[-1])
            return shortened(said) or f"it ended with status {status}"
        if not status:
            return ""
        return shortened(lines[-1] if self._is_one(lines[-1]) else self._said_in_several("\n".join(lines)))

    def _is_one(self, said: str) -> bool:
        return any(re.match(words, said) for words in self._login.words)

    def _said_in_several(self, text: str) -> str:
        """Return the first line of a final error of several lines; empty if it is not about the login."""
        for lines in self._login.endings:
            if ending := re.search(rf"^(?:{lines})\Z", text, re.MULTILINE):
                return ending[0].partition("\n")[0]
        return ""
