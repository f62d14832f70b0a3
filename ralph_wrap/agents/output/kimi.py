"""``kimi --output-format stream-json``, captured from 2.1.

https://moonshotai.github.io/kimi-code/en/reference/kimi-command

A line has a role, and what is no message has the role ``meta`` and a type. It reports no tokens. It tells the
reason of a failure on stderr only, except that it repeats a refused request, ten times by default
(``loop_control.max_attempts_per_step``), and says why. The line about its session is its last one, and
comes only if it has not failed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

from ralph_wrap.agents.output import failure, json_access
from ralph_wrap.agents.output.events import AgentMessage, AgentSessionId, Event, FinalAnswer, ToolCall
from ralph_wrap.system.document import from_json

_OWN_DELAY = 60.0  # seconds; a longer one was named by the service
_LONGEST_DELAY = 1e10  # seconds; a much later time is none for datetime


class KimiFormat:
    """Reads one iteration; see the module."""

    key = "role"
    ignored = re.compile(rb'\{"role":"tool",')
    """Pattern for the beginning of lines without information."""

    def __init__(self) -> None:
        self._latest = ""

    def read(self, document: dict[str, Any]) -> Iterator[Event]:
        """Yield the events of a line."""
        role, kind = document["role"], document.get("type")
        if role == "assistant":
            self._latest = json_access.text(document, "content")
            if self._latest:
                yield AgentMessage(self._latest)
            for call in json_access.rows(document, "tool_calls"):
                self._latest = ""
                arguments = _parsed(json_access.text(call, "function", "arguments"))
                yield ToolCall(json_access.text(call, "function", "name"), json_access.telling(arguments))
        elif role == "meta" and kind == "session.resume_hint":
            if session := json_access.text(document, "session_id"):
                yield AgentSessionId(session)
            yield FinalAnswer(self._latest)
            self._latest = ""
        elif role == "meta" and kind == "turn.step.retrying":
            message = json_access.text(document, "error_message") or "the agent gives no reason"
            delay = (json_access.number(document, "delay_ms") or 0.0) / 1000
            until = time.time() + delay if _OWN_DELAY < delay < _LONGEST_DELAY else None
            yield failure.classified(message, json_access.number(document, "status_code"), until)


def _parsed(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return None


FORMAT = KimiFormat
