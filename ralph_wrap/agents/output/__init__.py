"""Read the machine-readable output of agents; one module reads one format.

A reader accepts the stream in pieces of any size, and never raises. A bad line is an event too: a cut or
overlong line, one that is not JSON, or not of the format. Memory use is constant: a reader keeps one line,
the answer and a few numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from ralph_wrap.agents.output import claude, codex, copilot, droid, gemini, kimi, opencode, qwen
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
from ralph_wrap.agents.output.lines import LONGEST, LineSplitter


class OutputFormat(Protocol):
    """A parser of one format; each iteration gets a new one."""

    @property
    def key(self) -> str:
        """The key with a text that each line of the format has."""

    @property
    def ignored(self) -> re.Pattern[bytes]:
        """Pattern for the beginning of lines without information, mostly results of tools."""

    def read(self, document: dict[str, Any]) -> Iterator[Event]:
        """Yield the events of a line."""


_decode = json.JSONDecoder().raw_decode  # not json.loads(), which looks at each of many short lines twice

_FORMATS: dict[str, Callable[[], OutputFormat]] = {
    "claude": claude.FORMAT,
    "codex": codex.FORMAT,
    "opencode": opencode.FORMAT,
    "copilot": copilot.FORMAT,
    "gemini": gemini.FORMAT,
    "qwen": qwen.FORMAT,
    "kimi": kimi.FORMAT,
    "droid": droid.FORMAT,
}

FORMATS = tuple(_FORMATS)
"""The values of ``output`` in the configuration, except ``text``."""


class OutputReader:
    """Reads the output of an agent, iteration after iteration.

    Arguments:
        output: name of the format.

    """

    def __init__(self, output: str) -> None:
        self._make = _FORMATS[output]
        self._lines = LineSplitter()
        self._format = self._make()

    def feed(self, piece: bytes) -> list[Event]:
        """Return the events of the lines that a piece completes."""
        return self._read(self._lines.feed(piece))

    def finish(self) -> list[Event]:
        """Return the events of a last line without newline, and prepare for the next iteration."""
        events = self._read(self._lines.finish())
        self._format = self._make()
        return events

    def _read(self, lines: Iterable[bytes | SkippedLine]) -> list[Event]:
        events: list[Event] = []
        key, is_ignored, read = self._format.key, self._format.ignored.match, self._format.read
        for line in lines:
            if isinstance(line, SkippedLine):
                events.append(line)
                continue
            if is_ignored(line):
                continue
            text = line.decode(errors="replace")
            try:
                document, end = _decode(text)
            except (ValueError, RecursionError):
                document, end = None, 0
            is_whole = end == len(text) or not text[end:].strip()
            if is_whole and isinstance(document, dict) and isinstance(document.get(key), str):
                events.extend(read(document))
            else:
                events.append(UnparsedLine(line))
        return events


__all__ = [
    "FORMATS",
    "LONGEST",
    "AgentFailure",
    "AgentMessage",
    "AgentSessionId",
    "AgentWarning",
    "Event",
    "FinalAnswer",
    "OutputReader",
    "SkippedLine",
    "ToolCall",
    "UnparsedLine",
    "Usage",
    "UsageLimitReached",
]
