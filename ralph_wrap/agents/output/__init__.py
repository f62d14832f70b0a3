"""Read what agents tell of themselves: machine-readable lines, each by the module of its format.

A reader takes the stream in whatever pieces it comes and never raises: a line that is cut, is not JSON, is
not of the format or is too long is an event, too. It keeps one line, the answer and a few numbers, however
long the stream is.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from ralph_wrap.agents.output.events import (
    Answered,
    Called,
    Event,
    Failed,
    Known,
    Limited,
    Said,
    Skipped,
    Spent,
    Stray,
    Trouble,
)
from ralph_wrap.agents.output.lines import LONGEST, Lines

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator


_decode = (
    json.JSONDecoder().raw_decode
)  # json.loads() less what it looks at first: lines can be many and short


class Format(Protocol):
    """What a module of a format offers, anew for each iteration."""

    @property
    def ignored(self) -> re.Pattern[bytes]:
        """How lines begin that tell nothing, and need not be understood: results of tools, above all."""

    def read(self, document: dict[str, Any]) -> Iterator[Event]:
        """Yield what a line tells."""


FORMATS = ("claude", "codex", "opencode", "gemini")
"""The names that ``output`` has in the configuration, but for ``text``; each is that of a module here."""


class Reader:
    """Reads what an agent prints, iteration after iteration.

    Arguments:
        output: name of the format.

    """

    def __init__(self, output: str) -> None:
        self._make: Callable[[], Format] = import_module(f"{__name__}.{output}").Format
        self._lines = Lines()
        self._format = self._make()

    def feed(self, piece: bytes) -> list[Event]:
        """Return what is told by the lines that a piece completes."""
        return self._read(self._lines.feed(piece))

    def finish(self) -> list[Event]:
        """Return what is told by the last line, if it has no end, and start anew."""
        events = self._read(self._lines.finish())
        self._format = self._make()
        return events

    def _read(self, lines: Iterable[bytes | Skipped]) -> list[Event]:
        events: list[Event] = []
        is_ignored, read = self._format.ignored.match, self._format.read
        for line in lines:
            if isinstance(line, Skipped):
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
            if is_whole and isinstance(document, dict) and isinstance(document.get("type"), str):
                events.extend(read(document))
            else:
                events.append(Stray(line))
        return events


__all__ = [
    "FORMATS",
    "LONGEST",
    "Answered",
    "Called",
    "Event",
    "Failed",
    "Known",
    "Limited",
    "Reader",
    "Said",
    "Skipped",
    "Spent",
    "Stray",
    "Trouble",
]
