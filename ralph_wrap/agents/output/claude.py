"""``claude --output-format stream-json`` (https://code.claude.com/docs/en/headless; captured from 2.1)."""

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

_SYNTHETIC = "<synthetic>"  # the model name in error messages of Claude Code itself; the result repeats them
_REMEMBERED = 64  # messages that may still get more parts: parts of several sub-agents alternate
_CAPPED = "error_max_budget_usd"  # the limit of --max-budget-usd was reached
_LOGGED_OUT = "authentication_failed"  # Claude Code's own word for no login, and for one that is refused


class ClaudeFormat:
    """Reads one iteration; see the module."""

    key = "type"
    ignored = re.compile(
        rb'\{"type":"(?:user",|stream_event","event":\{"type":"(?:content_block_|message_stop"|ping"))'
    )
    """Pattern for the beginning of lines without information."""

    def __init__(self) -> None:
        # Tokens of the latest messages. Each part of a message repeats the number of its beginning.
        self._messages: dict[str, int] = {}
        # The message that the agent, or a sub-agent, receives now: its id, and its usage at its beginning.
        self._begun: dict[str, tuple[str, dict[str, Any]]] = {}
        self._tokens = 0
        self._turns = 0
        self._until: float | None = None
        self._error = ""

    def read(self, document: dict[str, Any]) -> Iterator[Event]:
        """Yield the events of a line."""
        kind = document["type"]
        return self._message(document) if kind == "assistant" else self._other(kind, document)

    def _other(self, kind: str, document: dict[str, Any]) -> Iterator[Event]:
        if kind == "stream_event":
            yield from self._part(json_access.text(document, "parent_tool_use_id"), document.get("event"))
        elif kind == "result":
            yield from self._result(document)
        elif kind == "rate_limit_event":
            info = document.get("rate_limit_info")
            rejected = (
                json_access.text(info, "status") == "rejected"
                and json_access.part(info, "isUsingOverage") is not True
            )
            self._until = json_access.moment(info, "resetsAt") if rejected else None
        elif kind == "system":
            if document.get("subtype") == "init" and (session := json_access.text(document, "session_id")):
                yield AgentSessionId(session)
            elif document.get("subtype") == "api_retry":
                attempt, most = (
                    json_access.count(document, "attempt"),
                    json_access.count(document, "max_retries"),
                )
                why = json_access.text(document, "error") or "no answer"
                yield AgentWarning(f"{why}: retry {attempt} of {most}")

    def _message(self, document: dict[str, Any]) -> Iterator[Event]:
        message = document.get("message")
        if json_access.text(message, "model") == _SYNTHETIC:
            self._error = json_access.text(document, "error")
            return
        self._error = ""
        for block in json_access.rows(message, "content"):
            kind = json_access.text(block, "type")
            if (
                kind == "text"
                and document.get("parent_tool_use_id") is None
                and (words := json_access.text(block, "text"))
            ):
                yield AgentMessage(words)
            elif kind == "tool_use":
                yield ToolCall(
                    json_access.text(block, "name"), json_access.telling(json_access.part(block, "input"))
                )
        self._count(json_access.text(message, "id"), _used(json_access.part(message, "usage")))
        yield self._usage()

    def _part(self, parent: str, event: Any) -> Iterator[Event]:
        """Read the beginning or the end of a message (``--include-partial-messages``)."""
        usage = json_access.part(event, "message", "usage")
        if json_access.text(event, "type") == "message_start":
            if len(self._begun) < _REMEMBERED:
                name = json_access.text(event, "message", "id")
                self._begun[parent] = name, usage if isinstance(usage, dict) else {}
        elif json_access.text(event, "type") == "message_delta" and parent in self._begun:
            name, usage = self._begun[parent]
            more = json_access.part(event, "usage")
            self._count(name, _used(usage | more if isinstance(more, dict) else usage))
            # After any other end of a turn the result follows. A limit must not end the agent before that.
            if parent or json_access.text(event, "delta", "stop_reason") == "tool_use":
                yield self._usage()

    def _count(self, name: str, tokens: int) -> None:
        before = self._messages.get(name, 0)
        if name not in self._messages:
            self._turns += 1
        self._messages[name] = max(tokens, before)
        self._tokens += max(tokens, before) - before
        if len(self._messages) > _REMEMBERED:
            del self._messages[next(iter(self._messages))]

    def _usage(self) -> Usage:
        return Usage(self._tokens, None, self._turns)

    def _result(self, document: dict[str, Any]) -> Iterator[Event]:
        models = document.get("modelUsage")  # includes sub-agents; "usage" does not
        used = [_used_by(model) for model in models.values()] if isinstance(models, dict) else []
        tokens = sum(used) or _used(document.get("usage"))
        yield Usage(
            tokens, json_access.number(document, "total_cost_usd"), json_access.count(document, "num_turns")
        )
        words = json_access.text(document, "result")
        subtype = json_access.text(document, "subtype")
        if document.get("is_error") is not True and subtype in {"success", ""}:
            yield FinalAnswer(words)
            return
        status = json_access.number(document, "api_error_status")
        errors = "; ".join(error for error in json_access.rows(document, "errors") if isinstance(error, str))
        message = words or errors or subtype
        if subtype == _CAPPED:
            yield AgentFailure(message, capped=True)
        elif self._until is not None:
            yield UsageLimitReached(message, self._until)
        elif self._error == _LOGGED_OUT:
            yield AgentFailure(message, logged_out=True)
        else:
            yield failure.classified(message, status)


def _used(usage: Any) -> int:
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    return sum(json_access.count(usage, name) for name in names)


def _used_by(model: Any) -> int:
    names = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens", "outputTokens")
    return sum(json_access.count(model, name) for name in names)


FORMAT = ClaudeFormat
