"""``opencode run --format json`` (https://opencode.ai/docs/cli; captured from 1.18).

It repeats a refused request five times. This takes a minute, or as long as the service demands. During this
time it prints nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ralph_wrap.agents.output import failure, json_access
from ralph_wrap.agents.output.answer import AnswerCollector
from ralph_wrap.agents.output.events import (
    AgentFailure,
    AgentMessage,
    AgentSessionId,
    Event,
    FinalAnswer,
    ToolCall,
    Usage,
)
from ralph_wrap.system.document import from_json

_GOES_ON = {"tool-calls", "unknown"}  # end reasons of a step that another step follows
_LOGGED_OUT = "ProviderAuthError"  # opencode itself finds no key for a provider
_RESET = "anthropic-ratelimit-unified-reset"  # header with the end time of a limit


class OpencodeFormat:
    """Reads one iteration; see the module."""

    key = "type"
    ignored = re.compile(rb"(?!)")
    """Pattern for the beginning of lines without information: there are none."""

    def __init__(self) -> None:
        self._answer = AnswerCollector()
        self._tokens = 0
        self._cost: float | None = None
        self._turns = 0
        self._session = ""

    def read(self, document: dict[str, Any]) -> Iterator[Event]:
        """Yield the events of a line."""
        kind, part = document.get("type"), document.get("part")
        if kind in {"step_start", "step_finish", "text", "tool_use"}:
            session = json_access.text(document, "sessionID")
            if session and session != self._session:
                self._session = session
                yield AgentSessionId(session)
        if kind == "step_start":
            self._answer.forget()
        elif kind == "text":
            words = json_access.text(part, "text")
            self._answer.add(f"{words}\n")
            yield AgentMessage(words)
        elif kind == "tool_use":
            yield ToolCall(
                json_access.text(part, "tool"), json_access.telling(json_access.part(part, "state", "input"))
            )
        elif kind == "step_finish":
            yield self._spent(part)
            if json_access.text(part, "reason") not in _GOES_ON:
                yield FinalAnswer(str(self._answer).removesuffix("\n"))
        elif kind == "error":
            yield _refused(document)

    def _spent(self, part: Any) -> Usage:
        tokens = json_access.part(part, "tokens")
        counts = [json_access.count(tokens, name) for name in ("input", "output", "reasoning")]
        cached = [json_access.count(tokens, "cache", name) for name in ("read", "write")]
        self._tokens += json_access.count(tokens, "total") or sum(counts) + sum(cached)
        cost = json_access.number(part, "cost")
        if cost is not None:
            self._cost = (self._cost or 0.0) + cost
        self._turns += 1
        return Usage(self._tokens, self._cost, self._turns)


def _refused(document: dict[str, Any]) -> Event:
    error = document.get("error")
    data = json_access.part(error, "data")
    message = (
        json_access.text(data, "message") or json_access.text(error, "name") or "the agent gives no reason"
    )
    if json_access.text(error, "name") == _LOGGED_OUT:
        return AgentFailure(message, logged_out=True)
    milliseconds = json_access.number(document, "timestamp")
    until = None if milliseconds is None else _until(data, message, milliseconds / 1000)
    passing = json_access.part(data, "isRetryable") is True
    return failure.classified(message, json_access.number(data, "statusCode"), until, passing=passing)


def _until(data: Any, message: str, now: float) -> float | None:
    """Return the end of a limit, from a header, the body or the message of the service's answer.

    Arguments:
        data: the service's answer, as opencode reports it.
        message: the message in the answer.
        now: time of the answer, in seconds since the epoch.

    """
    headers = json_access.part(data, "responseHeaders")
    body = _parsed(json_access.text(data, "responseBody"))
    times = [_parsed(json_access.text(headers, _RESET)), json_access.part(body, "error", "resets_at")]
    pauses = [
        _parsed(json_access.text(headers, "retry-after")),
        json_access.part(body, "error", "resets_in_seconds"),
    ]
    found = [json_access.moment({"": time}, "") for time in times]
    found += [
        None if (pause := json_access.moment({"": text}, "")) is None else now + pause for text in pauses
    ]
    until = next((time for time in found if time), None) or failure.after(message, now)
    return json_access.moment({"": until}, "")


def _parsed(text: str) -> Any:
    """Parse a JSON number or document; ``None`` if the text is neither."""
    try:
        return from_json(text)
    except ValueError:
        return None


FORMAT = OpencodeFormat
