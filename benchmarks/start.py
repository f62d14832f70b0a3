"""From the start of the process to the agent's first instruction, against bare `git worktree add`."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from scenarios import PROGRAM, STAMP, compare, in_turns, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scenarios import Verdict

LIMITS = {2_000: 2.0, 20_000: 0.8, 100_000: 0.6}
"""Highest ratio by number of files."""

REPEATS = {2_000: 15, 20_000: 9, 100_000: 5}


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claim for each of its sizes, or for one of them."""
    for size in LIMITS if files is None else (files,):
        yield _measure(directory / str(size), size, repeat or REPEATS.get(size, 5))


def _measure(directory: Path, files: int, repeat: int) -> Verdict:
    limit = LIMITS[max((size for size in LIMITS if size <= files), default=min(LIMITS))]
    repository = make_repository(directory, files)
    agent = repository.script("agent", STAMP)
    bare = repository.script("bare", f'git worktree add -b "$1" "../$1" && cd "../$1" && exec {agent}')
    numbers = count()

    def ours() -> float:
        run = repository.run(PROGRAM, "run", "--keep-worktree", "--max-iterations", "1", "--", agent)
        repository.settle()
        return run.stamp - run.begun

    def theirs() -> float:
        run = repository.run(bare, f"bare-{next(numbers)}")
        repository.settle()
        return run.stamp - run.begun

    return compare(f"start, {files:,} files", limit, *in_turns(repeat, ours, theirs))
