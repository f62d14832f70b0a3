"""What a sandbox adds to a start: to the agent's first instruction, beside the same start without one."""

from __future__ import annotations

import functools
import statistics
from typing import TYPE_CHECKING

from scenarios import PROGRAM, STAMP, Verdict, in_turns, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scenarios import Repository

FILES = 200
KINDS = ("bwrap", "landlock")
LIMIT = 60.0  # milliseconds
_REPEATS = 15


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claim for each kind of sandbox."""
    size = files or FILES
    repository = make_repository(directory / "sandbox", size)
    agent = repository.script("agent", STAMP)
    sides = (functools.partial(_start, repository, agent, kind) for kind in ("off", *KINDS))
    without, *others = in_turns(repeat or _REPEATS, *sides)
    for kind, starts in zip(KINDS, others, strict=True):
        added = sorted(1000 * (one - plain) for one, plain in zip(starts, without, strict=True))
        detail = (
            f"{statistics.median(starts):.3f} s to {statistics.median(without):.3f} s,"
            f" {len(added)} pairs, {added[0]:.0f} ms to {added[-1]:.0f} ms"
        )
        yield Verdict(
            f"what {kind} adds to a start, {size:,} files", statistics.median(added), LIMIT, " ms", detail
        )


def _start(repository: Repository, agent: str, kind: str) -> float:
    run = repository.run(PROGRAM, "run", "--sandbox", kind, "--max-iterations", "1", "--", agent)
    repository.settle()
    return run.stamp - run.begun
