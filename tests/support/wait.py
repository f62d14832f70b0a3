"""Waiting for something to become true; the only place where a test itself sleeps.

The programs that tests run as agents (``stubborn_agent.py``, ``talkative_agent.py``, shell scripts) cannot
import this. They sleep by themselves, between two looks at a file, or to be an agent that takes its time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

CAP = 30.0
"""Seconds until what was waited for counts as missing; generous, since it only passes in failing tests.

On a machine with ten times as much work as cores, 10 s were too few for a session of one iteration.
"""

STEP = 0.01
"""Seconds between two looks."""

LONGEST_STEP = 0.05
"""The same where the wait is a long one: a look at all processes takes as long as a step."""

ABSENCE = 0.5
"""Seconds in which something that must not happen would have happened."""

_T = TypeVar("_T")


def eventually(look: Callable[[], _T | None], what: str, cap: float = CAP) -> _T:
    """Return the first true answer of *look*."""
    begun = time.monotonic()
    while not (found := look()):
        waited = time.monotonic() - begun
        assert waited < cap, f"waited {cap:.0f} s for {what}"
        time.sleep(min(max(STEP, waited / 10), LONGEST_STEP))
    return found


def never(look: Callable[[], object], what: str, windows: int = 1) -> None:
    """Fail if *look* answers true within some windows of absence."""
    deadline = time.monotonic() + windows * ABSENCE
    while time.monotonic() < deadline:
        found = look()
        assert not found, f"{what}: {found}"
        time.sleep(STEP)


def steady(look: Callable[[], object], what: str) -> None:
    """Wait until *look* has answered the same for a window of absence."""
    answers: list[tuple[object, float]] = []

    def unchanged() -> bool:
        answer = look()
        if not answers or answers[-1][0] != answer:
            answers.append((answer, time.monotonic()))
        return time.monotonic() >= answers[-1][1] + ABSENCE

    eventually(unchanged, f"{what} to stay the same")


def seldom(count: Callable[[], int], what: str, windows: int = 4) -> None:
    """Wait until *count* grows by less than ten a second, during some windows of absence."""

    def grows_slowly() -> bool:
        before, begun = count(), time.monotonic()
        time.sleep(windows * ABSENCE)
        return count() - before < 10 * (time.monotonic() - begun)

    eventually(grows_slowly, f"{what} to become few")
