"""Memory of a session whose agent is silent.

Proportional set size (`proc(5)`: smaps_rollup): pages shared with others count by share. Other running
Pythons make it smaller, so the private part is shown too, which nothing outside can change.
"""

from __future__ import annotations

import re
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios import PROGRAM, Verdict, Waiting, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = 2_000
LIMIT = 25.0  # MB of 1,000,000 bytes
_SETTLED = 1.0  # seconds
_READS = 5


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claim, one session at a time."""
    shared: list[float] = []
    private: list[float] = []
    repository = make_repository(directory / "idle", files or FILES)
    agent = repository.script("agent", "echo ready; exec sleep 3600")
    for _ in range(repeat or 3):
        with Waiting(repository, PROGRAM, "run", "--", agent) as session:
            session.wait_until_ready()
            for _ in range(_READS):
                time.sleep(_SETTLED)
                rollup = Path(f"/proc/{session.pid}/smaps_rollup").read_text()
                shared.append(_megabytes(rollup, "Pss"))
                private.append(_megabytes(rollup, "Private_Dirty") + _megabytes(rollup, "Private_Clean"))
    detail = (
        f"private {statistics.median(private):.1f} MB,"
        f" {len(shared)} reads from {min(shared):.1f} to {max(shared):.1f} MB"
    )
    yield Verdict("idle session, proportional set size", statistics.median(shared), LIMIT, " MB", detail)


def _megabytes(rollup: str, name: str) -> float:
    found = re.search(rf"^{name}: +(\d+) kB$", rollup, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6
