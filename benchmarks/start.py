"""From the start of the process to the agent's first instruction, against bare `git worktree add`.

Beside it stands what no start can beat: git's own parallel checkout, with the workers that ours has.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from scenarios import PEER, PROGRAM, STAMP, beside, compare, in_turns, make_repository

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scenarios import Verdict

LIMITS = {2_000: 1.5, 20_000: 0.8, 100_000: 0.6}
"""Highest ratio by number of files."""

BUSY_LIMIT = 1.8
"""The same for 2,000 files, while busy loops use the processors."""

_NEAR = 1.05  # of git's own parallel checkout, where that alone misses the limit

REPEATS = {2_000: 15, 20_000: 9, 100_000: 5}


def measure(
    directory: Path, files: int | None, repeat: int | None, *, busy: bool = False
) -> Iterator[Verdict]:
    """Measure the claim for each of its sizes, or for one of them."""
    for size in LIMITS if files is None else (files,):
        kind = max((known for known in LIMITS if known <= size), default=min(LIMITS))
        limit = BUSY_LIMIT if busy and kind == min(LIMITS) else LIMITS[kind]
        yield _measure(directory / str(size), size, repeat or REPEATS.get(size, 5), limit)


def _measure(directory: Path, files: int, repeat: int, limit: float) -> Verdict:
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

    peer = repository.script(
        "peer", f'{PEER} switch --yes --no-cd --create "$1" >&2 && cd "../project.$1" && exec {agent}'
    )
    sides: list[Callable[[], float]] = [ours, lambda: script(bare), lambda: script(parallel)]
    if shutil.which(PEER):
        sides.append(lambda: script(peer))
    mine, theirs, least, *peers = in_turns(repeat, *sides)
    verdict = compare(f"start, {files:,} files", limit, mine, theirs)
    bound = compare("git's own parallel checkout alone", limit, least, theirs)
    if files > min(LIMITS):
        verdict = replace(verdict, limit=round(max(limit, _NEAR * bound.value), 2))
    verdict = beside(verdict, mine, peers)
    return replace(verdict, detail=f"{verdict.detail}; {bound.claim}: {bound.value:.2f}x")
