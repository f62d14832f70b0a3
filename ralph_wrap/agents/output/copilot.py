"""``copilot --output-format json``, captured from 1.0.102.

It prints the events of its session, and reports no tokens. It names its session at its end. It repeats a
refused request five times, which takes some seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ralph_wrap.agents.output import failure, json_access
from ralph_wrap.agents.output.events import (
    AgentMessage,
    AgentSessionId,
    AgentWarning,
    Event,
    FinalAnswer,
    ToolCall,
)


class CopilotFormat:
    """Reads one iteration; see the module."""

    key = "type"
    ignored = re.compile(
        rb'\{"type":"(?:session\.(?!error)|user\.|model\.|tool\.execution_(?:partial_result|complete)'
        rb'|assistant\.(?!message"|turn_retry))'
    )
    """Pattern for the beginning of lines without information: most of them."""

    def __init__(self) -> None:
        self._latest = ""
        self._has_failed = False

    def read(self, document: dict[str, Any]) -> Iterator[Event]:
        """Yield the events of a line."""
        kind, data = document["type"], document.get("data")
        if kind == "assistant.message":
            if not json_access.text(data, "parentToolCallId"):  # else of a sub-agent
                self._latest = json_access.text(data, "content")
                if self._latest:
                    yield AgentMessage(self._latest)
        elif kind == "tool.execution_start":
            self._latest = ""
            yield ToolCall(json_access.text(data, "toolName"), json_access.telling(_given(data)))
        elif kind == "assistant.turn_retry":
            yield AgentWarning(f"{json_access.text(data, 'reason') or 'no answer'}: retry")
        elif kind == "session.error":
            self._has_failed = True
            message = json_access.text(data, "message") or "the agent gives no reason"
            until = failure.after(message, json_access.iso_moment(document, "timestamp"))
            yield failure.classified(message, json_access.number(data, "statusCode"), until)
        elif kind == "result":
            yield from self._result(document)

    def _result(self, document: dict[str, Any]) -> Iterator[Event]:
        if session := json_access.text(document, "sessionId"):
            yield AgentSessionId(session)
        status = document.get("exitCode")
        if status == 0 and not self._has_failed:
            yield FinalAnswer(self._latest)
        elif not self._has_failed:
            yield failure.classified(f"exit status {status}")


def _given(data: Any) -> Any:
    return json_access.part(data, "arguments")


FORMAT = CopilotFormat
