"""Split a stream that arrives in pieces into lines, in constant memory."""

from __future__ import annotations

from collections.abc import Iterator

from ralph_wrap.agents.output.events import SkippedLine

LONGEST = 1 << 20
"""Maximum size of a line in bytes. Text of an agent is shorter; the result of a tool may be longer."""


class LineSplitter:
    """Splits a stream into lines; a line longer than :data:`LONGEST` is not kept, only its size."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes | SkippedLine]:
        """Yield the lines that a piece completes, without their newlines."""
        first, *rest = piece.split(b"\n")
        self._add(first)
        if not rest:
            return
        yield self._take()
        last = rest.pop()
        for line in rest:
            yield line if len(line) <= LONGEST else SkippedLine(len(line))
        self._add(last)

    def finish(self) -> Iterator[bytes | SkippedLine]:
        """Yield the last line if it has no newline."""
        if self._size:
            yield self._take()

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= LONGEST:
            self._begun += part
        else:
            self._begun.clear()

    def _take(self) -> bytes | SkippedLine:
        line = bytes(self._begun) if self._size <= LONGEST else SkippedLine(self._size)
        self._begun.clear()
        self._size = 0
        return line
