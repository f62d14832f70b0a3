"""Collect a final answer that arrives in parts, in constant memory."""

from __future__ import annotations

from collections import deque

LONGEST = 1 << 20
"""Number of characters to keep: the last ones, because the promise stands at the end."""


class AnswerCollector:
    """Collects text that may be the final answer."""

    def __init__(self) -> None:
        self._parts: deque[str] = deque()
        self._size = 0

    def add(self, words: str) -> None:
        """Append text."""
        self._parts.append(words)
        self._size += len(words)
        while self._size > LONGEST:
            self._size -= len(self._parts.popleft())

    def forget(self) -> None:
        """Drop the text: it was not the final answer."""
        self._parts.clear()
        self._size = 0

    def __str__(self) -> str:
        return "".join(self._parts)
