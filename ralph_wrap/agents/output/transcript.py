"""The readable form of an agent's work: its text, and a line for each use of a tool."""

from __future__ import annotations

import re

from ralph_wrap.agents.output.events import (
    AgentFailure,
    AgentMessage,
    AgentSessionId,
    AgentWarning,
    Event,
    FinalAnswer,
    SkippedLine,
    ToolCall,
    UnparsedLine,
    Usage,
    UsageLimitReached,
)
from ralph_wrap.system.log import one_line

_WIDEST = 200  # maximum number of characters of a tool's argument, or of an error
_LONGEST = 1 << 16  # a line without newline is printed when it has this many characters
_HIDDEN = (Usage, FinalAnswer, AgentSessionId)
_ERRORS = (AgentWarning, UsageLimitReached, AgentFailure)
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)  # all but tab and newline; a model must not send control sequences to a terminal


class TranscriptFormatter:
    """Turns events into whole lines, so that other output on the terminal begins on a new line."""

    def __init__(self) -> None:
        self._begun = ""
        self._last_error = ""

    def show(self, event: Event) -> bytes:
        """Return the readable form of an event; for most kinds it is empty."""
        if isinstance(event, ToolCall):  # the most frequent event; its text has no control characters
            line = f"> {one_line(event.tool[:_WIDEST])}{_argument(event.argument)}\n"
            return self.finish() + line.encode("utf-8", "backslashreplace")
        if isinstance(event, _HIDDEN):
            return b""
        if isinstance(event, UnparsedLine):
            return self.finish() + event.line + b"\n"
        if isinstance(event, AgentMessage) and event.goes_on:
            whole, newline, begun = event.text.rpartition("\n")
            shown = self._begun + whole + newline if newline else ""
            self._begun = begun if newline else self._begun + begun
            if len(self._begun) > _LONGEST:
                shown, self._begun = shown + self._begun, ""
            return _encoded(shown) if shown else b""
        line = self._line(event)
        return self.finish() + _encoded(line) if line else b""

    def finish(self) -> bytes:
        """Return the rest of an unfinished line, with a newline."""
        begun, self._begun = self._begun, ""
        return _encoded(f"{begun}\n") if begun else b""

    def _line(self, event: Event) -> str:
        if isinstance(event, AgentMessage):
            return event.text.rstrip("\n") + "\n" if event.text.strip() else ""
        if isinstance(event, SkippedLine):
            return f"> a line of {event.size} bytes, see output.log\n"
        if isinstance(event, _ERRORS):
            if event.message == self._last_error:  # some agents print an error twice, again at the end
                return ""
            self._last_error = event.message
            return f"! {shortened(event.message)}\n"
        return ""


def shortened(message: str) -> str:
    """Return the beginning of a message, on one line."""
    words = " ".join(message[: 2 * _WIDEST].split())
    return one_line(words if len(words) <= _WIDEST else f"{words[:_WIDEST]}…")


def _argument(argument: str) -> str:
    if len(argument) <= _WIDEST and argument.isprintable():
        return f": {argument}" if argument else ""
    first, _, more = argument[: 2 * _WIDEST].strip().partition("\n")
    cut = more or len(first) > _WIDEST
    return f": {one_line(first[:_WIDEST])}{' …' if cut else ''}" if first else ""


def _encoded(text: str) -> bytes:
    return _CONTROL.sub(_named, text).encode("utf-8", "backslashreplace")


def _named(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]
