"""Which cases one run takes of a test that has many of them, and is slow.

``make test`` (``pytest --sample``) takes a sixth of the cases of each test in ``tests/slow.txt`` and of each
crash test, at least one. A slow test that has one case comes every second day, and a crash test each day. The
other cases come on the next days. With ``EVERY_POINT=1`` in the environment it takes all cases, kill points
and examples.
``SAMPLE_SEED=N`` takes those of an earlier day; each run prints its number.
"""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.support.processor_time import entry_of, slow_tests

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

EVERY_POINT = bool(os.environ.get("EVERY_POINT"))
"""Whether everything is taken."""

PARTS = 6
"""Days on which each case is taken once."""

_ALONE = 2
"""The same for the only case of a slow test: these tests take most of the time."""

_SEED = "SAMPLE_SEED"


def seed() -> int:
    """Return the number of the day; the first process of a run decides it for all."""
    return int(os.environ.setdefault(_SEED, str(datetime.now(UTC).toordinal())))


def examples(count: int) -> int:
    """Return how many of *count* random examples are tried."""
    return count if EVERY_POINT else -(-count // PARTS)


def left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the cases of slow and crash tests that are for another day, unless marked ``every_case``."""
    if EVERY_POINT:
        return set()
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    slow = slow_tests()
    for item in items:
        is_slow = (entry := entry_of(item)) in slow or item.get_closest_marker("crash")
        if is_slow and not item.get_closest_marker("every_case"):
            cases[entry].append(item)
    return {
        item
        for entry, group in cases.items()
        for number, item in enumerate(group)
        if (number + seed() + zlib.crc32(entry.encode())) % _days(group)
    }


def _days(cases: list[pytest.Item]) -> int:
    """Return on how many days the cases of one test are taken once."""
    if len(cases) == 1:
        return 1 if cases[0].get_closest_marker("crash") else _ALONE
    return min(PARTS, len(cases))
