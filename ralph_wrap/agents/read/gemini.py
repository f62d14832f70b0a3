"""``gemini --output-format stream-json`` (https://geminicli.com/docs/cli/headless; captured from 0.61)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ralph_wrap.agents.read import shape
from ralph_wrap.agents.read.answer import Answer
from ralph_wrap.agents.read.events import Answered, Called, Failed, Known, Limited, Said, Spent, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralph_wrap.agents.read.events import Event


class Format:
    """See the module."""

    ignored = re.compile(rb'\{"type":"tool_result",')
    """How lines begin that tell nothing."""

    def __init__(self) -> None:
        self._answer = Answer()

    def read(self, document: dict[str, Any]) -> Iterator[Event]:
        """Yield what a line tells."""
        kind = document.get("type")
        if kind == "message" and document.get("role") == "assistant":  # the user's is the prompt
            words = shape.text(document, "content")
            self._answer.add(words)
            yield Said(words, goes_on=document.get("delta") is True)
        elif kind == "tool_use":
            self._answer.forget()
            yield Called(shape.text(document, "tool_name"), shape.telling(document.get("parameters")))
        elif kind == "init" and (session := shape.text(document, "session_id")):
            yield Known(session)
        elif kind == "error":
            yield Trouble(shape.text(document, "message"))
        elif kind == "result":
            yield Spent(shape.count(document, "stats", "total_tokens"))
            yield self._result(document)
            self._answer.forget()

    def _result(self, document: dict[str, Any]) -> Event:
        if document.get("status") == "success":
            return Answered(str(self._answer))
        message = shape.text(document, "error", "message") or "it gives no reason"
        if shape.is_limit(message):
            return Limited(message)
        return Failed(message, shape.is_passing(message))
