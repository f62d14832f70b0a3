"""Lines of a stream that comes in pieces, in constant memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.agents.output.events import Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 1 << 20
"""Bytes of a line that is kept. What an agent says is shorter; what a tool has answered may be longer."""


class Lines:
    """Cuts a stream into lines; a longer one than :data:`LONGEST` is counted only."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes | Skipped]:
        """Yield the lines that a piece completes, without their ends."""
        first, *rest = piece.split(b"\n")
        self._add(first)
        if not rest:
            return
        yield self._take()
        last = rest.pop()
        for line in rest:
            yield line if len(line) <= LONGEST else Skipped(len(line))
        self._add(last)

    def finish(self) -> Iterator[bytes | Skipped]:
        """Yield the last line if it has no end."""
        if self._size:
            yield self._take()

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= LONGEST:
            self._begun += part
        else:
            self._begun.clear()

    def _take(self) -> bytes | Skipped:
        line = bytes(self._begun) if self._size <= LONGEST else Skipped(self._size)
        self._begun.clear()
        self._size = 0
        return line
