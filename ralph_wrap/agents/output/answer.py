"""A final answer that comes in parts, in constant memory."""

from __future__ import annotations

from collections import deque

LONGEST = 1 << 20
"""Characters that are kept: the last ones, where a promise stands."""


class Answer:
    """Collects the words that may turn out to be the final answer."""

    def __init__(self) -> None:
        self._parts: deque[str] = deque()
        self._size = 0

    def add(self, words: str) -> None:
        """Take more of it."""
        self._parts.append(words)
        self._size += len(words)
        while self._size > LONGEST:
            self._size -= len(self._parts.popleft())

    def forget(self) -> None:
        """Begin anew: what was said was not the final answer."""
        self._parts.clear()
        self._size = 0

    def __str__(self) -> str:
        return "".join(self._parts)
