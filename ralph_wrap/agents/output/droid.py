"""``droid exec --output-format stream-json``, captured from 0.215.

https://docs.factory.ai/cli/droid-exec/overview

It reports tokens only at its end. They are the tokens of the whole session, earlier runs included. It repeats
a refused request for a minute and a half, and prints nothing during this time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ralph_wrap.agents.output import failure, json_access
from ralph_wrap.agents.output.events import (
    AgentFailure,
    AgentMessage,
    AgentSessionId,
    Event,
    FinalAnswer,
    ToolCall,
    Usage,
    UsageLimitReached,
)

_STATUS = re.compile(r"(\d{3}) (.*)", re.DOTALL | re.ASCII)
_LAST_LINE = "cli"  # the source of the error at its end, which repeats that the run has failed


class DroidFormat:
    """Reads one iteration; see the module."""

    key = "type"
    ignored = re.compile(rb'\{"type":"(?:tool_result|reasoning)",')
    """Pattern for the beginning of lines without information."""

    def __init__(self) -> None:
        self._has_failed = False

    def read(self, document: dict[str, Any]) -> Iterator[Event]:
        """Yield the events of a line."""
        kind = document["type"]
        if kind == "message" and document.get("role") == "assistant":  # a message of the user is the prompt
            if words := json_access.text(document, "text"):
                yield AgentMessage(words)
        elif kind == "tool_call":
            yield ToolCall(
                json_access.text(document, "toolName"), json_access.telling(document.get("parameters"))
            )
        elif kind == "system" and document.get("subtype") == "init":
            if session := json_access.text(document, "session_id"):
                yield AgentSessionId(session)
        elif kind == "completion":
            yield Usage(_used(document.get("usage")), overall=True)
            yield FinalAnswer(json_access.text(document, "finalText"))
        elif kind == "error" and not (self._has_failed and document.get("source") == _LAST_LINE):
            self._has_failed = True
            yield _failed(json_access.text(document, "message"))


def _failed(message: str) -> UsageLimitReached | AgentFailure:
    found = _STATUS.fullmatch(message)
    if found is None:
        return failure.classified(message or "the agent gives no reason")
    return failure.classified(found[2], float(found[1]))


def _used(usage: Any) -> int:
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(json_access.count(usage, name) for name in names)


FORMAT = DroidFormat
