"""From the start of the process to the agent's first instruction, against bare `git worktree add`.

Beside it stands what no start can beat: git's own parallel checkout, with the workers that ours has.
"""

from __future__ import annotations

import os
from dataclasses import replace
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
    parallel = repository.script(
        "parallel",
        'git worktree add --no-checkout -b "$1" "../$1" && cd "../$1"\n'
        f"git -c checkout.workers={2 * (os.cpu_count() or 1)} reset --quiet --hard && exec {agent}",
    )
    numbers = count()

    def ours() -> float:
        run = repository.run(PROGRAM, "run", "--keep-worktree", "--max-iterations", "1", "--", agent)
        repository.settle()
        return run.stamp - run.begun

    def script(path: str) -> float:
        run = repository.run(path, f"other-{next(numbers)}")
        repository.settle()
        return run.stamp - run.begun

    mine, theirs, least = in_turns(repeat, ours, lambda: script(bare), lambda: script(parallel))
    verdict = compare(f"start, {files:,} files", limit, mine, theirs)
    bound = compare("git's own parallel checkout alone", limit, least, theirs)
    return replace(verdict, detail=f"{verdict.detail}; {bound.claim}: {bound.value:.2f}x")
