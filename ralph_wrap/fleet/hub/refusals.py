"""What origin refuses, such as a protected name or a large file. The hub tries again in growing waits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

_LONGEST_WAIT = 300.0  # seconds


class _Refusal(NamedTuple):
    reason: str
    wait: float
    until: float


class Refusals:
    """The refs that origin refuses.

    Arguments:
        interval: seconds between two rounds. The first wait is twice as long.

    """

    def __init__(self, interval: float) -> None:
        self._first = 2 * interval
        self._refused: dict[str, _Refusal] = {}

    def __contains__(self, ref: str) -> bool:
        return ref in self._refused

    def is_waiting(self, ref: str) -> bool:
        """Return whether it is too early to push a ref again."""
        return ref in self._refused and time.monotonic() < self._refused[ref].until

    def add(self, ref: str, reason: str) -> bool:
        """Take in that origin has refused a ref; return whether the reason is new."""
        before = self._refused.get(ref)
        wait = self._first if before is None else max(self._first, min(2 * before.wait, _LONGEST_WAIT))
        self._refused[ref] = _Refusal(reason, wait, time.monotonic() + wait)
        return before is None or before.reason != reason

    def keep(self, refs: Collection[str]) -> None:
        """Forget all refs but these."""
        self._refused = {ref: refusal for ref, refusal in self._refused.items() if ref in refs}
