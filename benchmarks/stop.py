"""From TERM to saved work: how long a session needs until everything uncommitted is on its branch.

Seconds, not a ratio: it is a part of the time that ``docker stop`` gives a container.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

from scenarios import PROGRAM, Verdict, Waiting, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scenarios import Repository

FILES = 100_000
LIMIT = 2.0  # seconds
_CHANGED = 1_000  # files, and as many new ones
_PATIENCE = 60.0  # seconds
_STEP = 0.002  # seconds between two looks


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claim, one session at a time."""
    size = files or FILES
    repository = make_repository(directory / "stop", size)
    agent = repository.script(
        "agent",
        f"for file in $(git ls-files | tail -n {min(size, _CHANGED)}); do\n"
        "echo more >>$file; echo new >$file.new\ndone\necho ready; read -r _",
    )
    seconds = [_seconds(repository, agent) for _ in range(repeat or 5)]
    detail = f"{_CHANGED:,} files changed, as many new, {len(seconds)} sessions, up to {max(seconds):.2f} s"
    yield Verdict(f"TERM to saved work, {size:,} files", statistics.median(seconds), LIMIT, " s", detail)


def _seconds(repository: Repository, agent: str) -> float:
    branches = repository.path / ".git" / "refs" / "heads" / "ralph"
    before = {*branches.glob("*-wip")}
    with Waiting(repository, PROGRAM, "run", "--max-iterations", "1", "--", agent) as session:
        session.wait_until_ready()
        os.sync()
        begun = time.monotonic()
        session.terminate()
        while not {*branches.glob("*-wip")} - before:
            if time.monotonic() > begun + _PATIENCE:
                raise TimeoutError("no work was saved")
            time.sleep(_STEP)
        saved = time.monotonic()
        session.wait()
    repository.settle()
    return saved - begun
