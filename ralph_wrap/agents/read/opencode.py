"""``opencode run --format json`` (https://opencode.ai/docs/cli; captured from 1.18).

While it repeats a request that was refused, for as long as that may be, it tells nothing at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ralph_wrap.agents.read import shape
from ralph_wrap.agents.read.answer import Answer
from ralph_wrap.agents.read.events import Answered, Called, Failed, Known, Limited, Said, Spent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralph_wrap.agents.read.events import Event

_GOES_ON = {"tool-calls", "unknown"}  # reasons for the end of a step that another one follows
_NO_MONEY, _LIMIT_STATUS = 402, 429  # of HTTP (RFC 9110): providers refuse an empty account by the first


class Format:
    """See the module."""

    ignored = re.compile(rb"(?!)")
    """How lines begin that tell nothing: none do."""

    def __init__(self) -> None:
        self._answer = Answer()
        self._tokens = 0
        self._cost: float | None = None
        self._turns = 0
        self._session = ""

    def read(self, document: dict[str, Any]) -> Iterator[Event]:
        """Yield what a line tells."""
        kind, part = document.get("type"), document.get("part")
        if kind in {"step_start", "step_finish", "text", "tool_use"}:
            session = shape.text(document, "sessionID")
            if session and session != self._session:
                self._session = session
                yield Known(session)
        if kind == "step_start":
            self._answer.forget()
        elif kind == "text":
            words = shape.text(part, "text")
            self._answer.add(f"{words}\n")
            yield Said(words)
        elif kind == "tool_use":
            yield Called(shape.text(part, "tool"), shape.telling(shape.part(part, "state", "input")))
        elif kind == "step_finish":
            yield self._spent(part)
            if shape.text(part, "reason") not in _GOES_ON:
                yield Answered(str(self._answer).removesuffix("\n"))
        elif kind == "error":
            yield _refused(document.get("error"))

    def _spent(self, part: Any) -> Spent:
        tokens = shape.part(part, "tokens")
        each = [shape.count(tokens, name) for name in ("input", "output", "reasoning")]
        cached = [shape.count(tokens, "cache", name) for name in ("read", "write")]
        self._tokens += shape.count(tokens, "total") or sum(each) + sum(cached)
        cost = shape.number(part, "cost")
        if cost is not None:
            self._cost = (self._cost or 0.0) + cost
        self._turns += 1
        return Spent(self._tokens, self._cost, self._turns)


def _refused(error: Any) -> Event:
    message = shape.text(error, "data", "message") or shape.text(error, "name") or "it gives no reason"
    status = shape.number(error, "data", "statusCode")
    if status in {_NO_MONEY, _LIMIT_STATUS} or shape.is_limit(message):
        return Limited(message)
    return Failed(message, shape.part(error, "data", "isRetryable") is True or shape.is_passing(message))
