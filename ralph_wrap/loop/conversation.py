"""The agent's own session, which the next iteration continues (``keep_conversation = true``).

An agent prints the name of its session while it works. The name goes into the next command line, so it must
look like a name. If an agent fails with a session, the loop does not use this session again. It may be
deleted or too long, and every further iteration would fail.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ralph_wrap.agents.output import AgentSessionId, OutputReader
from ralph_wrap.config import AgentSettings
from ralph_wrap.loop.policy import Iteration
from ralph_wrap.system.log import get_logger

log = get_logger()

_NAME = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"
)  # must not begin like an option; these agents use UUIDs and similar ids


class AgentConversation:
    """Remembers the agent's own session for the next iteration.

    Arguments:
        agent: the option ``keep_conversation``, and the agent's options to continue a session.

    Attributes:
        session: its name; empty while there is none.

    """

    def __init__(self, agent: AgentSettings) -> None:
        self._command = agent.command
        self._words = agent.invocation.resume
        self._is_wanted = agent.keep_conversation
        self.session = agent.conversation if self._words else ""
        if agent.keep_conversation and not self._words:
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
        if iteration.refused is not None:
            return
        taken_up = self.session
        if taken_up and iteration.failed and iteration.cut is None and not iteration.passing:
            self.session = ""
            log.warning(
                "conversation.failed",
                f"the agent failed with its own session {taken_up}: the next iteration begins a new one",
            )
        elif not self._is_wanted:  # only the first iteration continues the session of an earlier loop
            self.session = ""
        elif _NAME.fullmatch(named):
            self.session = named
        elif not taken_up and iteration.status == 0:
            self._give_up("the agent does not name its own session")

    def _give_up(self, reason: str) -> None:
        self._is_wanted = False
        log.warning(
            "conversation.ignored",
            f"no effect: keep_conversation; {reason}",
            "each iteration begins a new one",
        )


_READ = 64 << 20  # bytes at the end of a log: an agent may name its session only once in an iteration
_PIECE = 1 << 16


def last_conversation(log: Path, output: str) -> str:
    """Return the name of the agent's own session that an output log names last; empty if it names none.

    Arguments:
        log: ``output.log`` of a session.
        output: the format of the agent's output.

    """
    if output == "text":
        return ""
    reader, name = OutputReader(output), ""
    try:
        # An agent may have put a FIFO there.
        with os.fdopen(os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _READ))
            while piece := file.read(_PIECE):
                for event in reader.feed(piece):
                    name = event.session if isinstance(event, AgentSessionId) else name
    except OSError:
        return ""
    return name if _NAME.fullmatch(name) else ""
