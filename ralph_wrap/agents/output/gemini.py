"""``gemini --output-format stream-json`` (https://geminicli.com/docs/cli/headless; captured from 0.61).

It reports tokens only at its end. It repeats a refused request up to ten times (``general.maxAttempts``). It
waits as long as the service demands, and reports this on stderr only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ralph_wrap.agents.output import failure, json_access
from ralph_wrap.agents.output.answer import AnswerCollector
from ralph_wrap.agents.output.events import (
    AgentMessage,
    AgentSessionId,
    AgentWarning,
    Event,
    FinalAnswer,
    ToolCall,
    Usage,
    UsageLimitReached,
)
from ralph_wrap.system.document import from_json

# The frame that it puts around the service's message, and the text that it adds for status 429.
_WRAPPED = re.compile(r"\[API Error: (.*)\](\nPlease wait and try again later\..*)?", re.DOTALL)

_WRONG_KEY = "API_KEY_INVALID"  # https://cloud.google.com/apis/design/errors


class GeminiFormat:
    """Reads one iteration; see the module."""

    key = "type"
    ignored = re.compile(rb'\{"type":"tool_result",')
    """Pattern for the beginning of lines without information."""

    def __init__(self) -> None:
        self._answer = AnswerCollector()

    def read(self, document: dict[str, Any]) -> Iterator[Event]:
        """Yield the events of a line."""
        kind = document.get("type")
        if kind == "message" and document.get("role") == "assistant":  # a message of the user is the prompt
            words = json_access.text(document, "content")
            self._answer.add(words)
            yield AgentMessage(words, goes_on=document.get("delta") is True)
        elif kind == "tool_use":
            self._answer.forget()
            yield ToolCall(
                json_access.text(document, "tool_name"), json_access.telling(document.get("parameters"))
            )
        elif kind == "init" and (session := json_access.text(document, "session_id")):
            yield AgentSessionId(session)
        elif kind == "error":
            yield AgentWarning(json_access.text(document, "message"))
        elif kind == "result":
            yield Usage(json_access.count(document, "stats", "total_tokens"))
            yield self._result(document)
            self._answer.forget()

    def _result(self, document: dict[str, Any]) -> Event:
        if document.get("status") == "success":
            return FinalAnswer(str(self._answer))
        message, status = _unwrapped(json_access.text(document, "error", "message"))
        until = failure.after(message, json_access.iso_moment(document, "timestamp"))
        return failure.classified(message or "the agent gives no reason", status, until)


def _unwrapped(message: str) -> tuple[str, float | None]:
    """Return the message of the service itself, and the HTTP status if it is known."""
    found = _WRAPPED.fullmatch(message)
    if found is None:
        return message, None
    if found[2]:  # an overloaded service sends 429 too
        judged = failure.classified(found[1])
        return found[1], None if isinstance(judged, UsageLimitReached) or judged.passing else failure.LIMITED
    try:
        error = json_access.part(from_json(found[1]), "error")
    except ValueError:
        return found[1], None
    status = json_access.number(error, "code")
    if any(json_access.text(row, "reason") == _WRONG_KEY for row in json_access.rows(error, "details")):
        status = failure.UNAUTHORIZED  # the service itself sends 400
    return json_access.text(error, "message") or found[1], status


FORMAT = GeminiFormat
