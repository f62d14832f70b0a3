"""``qwen --output-format stream-json``, captured from 0.24.

https://qwenlm.github.io/qwen-code-docs/en/users/features/headless

Its lines resemble those of Claude Code, but each part of an answer is a message of its own, and only the last
one has the tokens of all. The tokens at its end are those of the whole session, earlier runs included, and of
requests that are not of the conversation, so they are not read. It repeats a refused request ten times, at
first after a minute (``model.generationConfig.maxRetries``), and does not say why.
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
    AgentWarning,
    Event,
    FinalAnswer,
    ToolCall,
    Usage,
    UsageLimitReached,
)

# The frame that it puts around the service's message, and what it adds for status 429.
_WRAPPED = re.compile(r"\[API Error: (?:(\d{3}) )?(.*)\](?:\nPossible quota .*)?", re.DOTALL | re.ASCII)


class QwenFormat:
    """Reads one iteration; see the module."""

    key = "type"
    ignored = re.compile(rb'\{"type":"(?:user|stream_event)",')
    """Pattern for the beginning of lines without information."""

    def __init__(self) -> None:
        self._tokens = 0
        self._turns = 0

    def read(self, document: dict[str, Any]) -> Iterator[Event]:
        """Yield the events of a line."""
        kind = document["type"]
        if kind == "assistant":
            yield from self._message(document)
        elif kind == "result":
            yield from self._result(document)
        elif kind == "system" and document.get("subtype") == "init":
            if session := json_access.text(document, "session_id"):
                yield AgentSessionId(session)
        elif kind == "system" and document.get("subtype") == "retry":
            seconds = json_access.count(document, "data", "delayMs") / 1000
            if seconds:  # else the wait is over
                yield AgentWarning(f"the service has refused a request: retry in {seconds:g} s")

    def _message(self, document: dict[str, Any]) -> Iterator[Event]:
        message = document.get("message")
        for block in json_access.rows(message, "content"):
            kind = json_access.text(block, "type")
            if kind == "text" and document.get("parent_tool_use_id") is None:
                if words := json_access.text(block, "text"):
                    yield AgentMessage(words)
            elif kind == "tool_use":
                yield ToolCall(
                    json_access.text(block, "name"), json_access.telling(json_access.part(block, "input"))
                )
        if used := _used(json_access.part(message, "usage")):
            self._tokens += used
            self._turns += 1
            yield Usage(self._tokens, None, self._turns)

    def _result(self, document: dict[str, Any]) -> Iterator[Event]:
        if document.get("is_error") is not True and document.get("subtype") == "success":
            yield FinalAnswer(json_access.text(document, "result"))
        else:
            message = json_access.text(document, "error", "message") or json_access.text(document, "subtype")
            yield _failed(message or "the agent gives no reason")


def _failed(message: str) -> UsageLimitReached | AgentFailure:
    found = _WRAPPED.fullmatch(message)
    if found is None:
        return failure.classified(message)
    return failure.classified(found[2], float(found[1]) if found[1] else None)


def _used(usage: Any) -> int:
    """Return the tokens; ``input_tokens`` include those from the cache."""
    parts = json_access.count(usage, "input_tokens") + json_access.count(usage, "output_tokens")
    return json_access.count(usage, "total_tokens") or parts


FORMAT = QwenFormat
