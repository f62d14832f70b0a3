"""The list of slow tests, ``tests/slow.txt``, and which of their cases a day takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import sampling
from tests.support.processor_time import LIST, slow_tests

if TYPE_CHECKING:
    from collections.abc import Callable


def test_each_entry_is_a_test() -> None:
    """An entry without its test is out of date: rename it, delete it, or run ``make measure``."""
    for entry in slow_tests():
        module, _, name = entry.partition("::")
        assert f"def {name}(" in (LIST.parent / module).read_text(), entry


@dataclass(frozen=True)
class Case:
    """A case of a test, as pytest has it."""

    originalname: str
    number: int
    name: str = ""
    path: Path = LIST.parent / "module.py"
    markers: frozenset[str] = frozenset()

    def get_closest_marker(self, name: str) -> str | None:
        """Return a marker."""
        return name if name in self.markers else None


ALL, CRASH = frozenset({"every_case"}), frozenset({"crash"})
SLOW = [
    *(Case("many", n) for n in range(9)),
    *(Case("two", n) for n in range(2)),
    Case("one", 0),
    *(Case("killed", n, markers=CRASH) for n in range(9)),
    Case("killed once", 0, markers=CRASH),
]
OTHERS = [*(Case("fast", n) for n in range(9)), *(Case("all", n, markers=ALL | CRASH) for n in range(9))]


@pytest.fixture
def left_out(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], set[Case]]:
    """Return what tells which cases a day leaves out."""
    names = frozenset(f"module.py::{name}" for name in ("many", "two", "one", "all"))
    monkeypatch.setattr(sampling, "slow_tests", lambda: names)
    monkeypatch.setattr(sampling, "EVERY_POINT", False)

    def ask(day: int) -> set[Case]:
        monkeypatch.setenv("SAMPLE_SEED", str(day))
        return sampling.left_out([*SLOW, *OTHERS])  # type: ignore[list-item, return-value]

    return ask


@pytest.mark.parametrize("day", range(6))
def test_six_days_take_each_case(left_out: Callable[[int], set[Case]], day: int) -> None:
    """Of a slow or crash test; each day takes a case of each test that has several, and all of the others."""
    days = [left_out(day + later) for later in range(6)]
    assert set.intersection(*days) == set()
    for left in days:
        assert left <= {*SLOW}
        taken = {case.originalname for case in {*SLOW} - left}
        assert taken - {"one"} == {"many", "two", "killed", "killed once"}
        for name in ("many", "killed"):
            assert len([case for case in left if case.originalname == name]) in {7, 8}


def test_an_only_case_comes_every_second_day(left_out: Callable[[int], set[Case]]) -> None:
    """Of a slow test; half of such tests come on one day, and the other half on the next."""
    only = Case("one", 0)
    taken = [only not in left_out(day) for day in range(6)]
    assert taken in ([True, False] * 3, [False, True] * 3)


def test_every_point_takes_each_case(
    left_out: Callable[[int], set[Case]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the variable."""
    monkeypatch.setattr(sampling, "EVERY_POINT", True)
    assert left_out(1) == set()
