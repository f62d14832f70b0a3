"""From the start of the process to the agent's first instruction, against bare `git worktree add`.

Beside it stands what no start can beat: git's own parallel checkout, with the workers that ours has.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from scenarios import PEER, PROGRAM, STAMP, beside, compare, in_turns, make_repository

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scenarios import Repository, Verdict

LIMITS = {2_000: 2.6, 20_000: 1.0, 100_000: 1.0}
"""Highest ratio by number of files."""

_NEAR = 1.05  # of git's own parallel checkout, where that alone misses the limit

_SCRIPTS = {
    "bare": 'git worktree add -b "$1" "../$1" && cd "../$1" && exec {agent}',
    "parallel": 'git worktree add --no-checkout -b "$1" "../$1" && cd "../$1"\n'
    f"git -c checkout.workers={2 * (os.cpu_count() or 1)} reset --quiet --hard && exec {{agent}}",
    PEER: f'{PEER} switch --yes --no-cd --create "$1" >&2 && cd "../project.$1" && exec {{agent}}',
}
"""What the other sides do, in the shell."""

REPEATS = {2_000: 15, 20_000: 9, 100_000: 5}


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claim for each of its sizes, or for one of them."""
    for size in LIMITS if files is None else (files,):
        kind = max((known for known in LIMITS if known <= size), default=min(LIMITS))
        yield _measure(directory / str(size), size, repeat or REPEATS.get(size, 5), LIMITS[kind])


def _measure(directory: Path, files: int, repeat: int, limit: float) -> Verdict:
    # Each side has a repository of its own: every worktree that exists makes the next one slower.
    repositories = {side: make_repository(directory / side, files) for side in _SCRIPTS if _is_here(side)}
    mine = make_repository(directory / "ours", files)
    numbers = count()

    def start(repository: Repository, *command: str) -> float:
        run = repository.run(*command)
        repository.settle()
        return run.stamp - run.begun

    def script(repository: Repository, path: str) -> float:
        return start(repository, path, f"other-{next(numbers)}")

    agent = mine.script("agent", STAMP)
    command = (PROGRAM, "run", "--keep-worktree", "--max-iterations", "1", "--", agent)
    sides: list[Callable[[], float]] = [partial(start, mine, *command)]
    for side, repository in repositories.items():
        body = _SCRIPTS[side].format(agent=repository.script("agent", STAMP))
        sides.append(partial(script, repository, repository.script("script", body)))
    ours, theirs, least, *peers = in_turns(repeat, *sides)
    verdict = compare(f"start, {files:,} files", limit, ours, theirs)
    bound = compare("git's own parallel checkout alone", limit, least, theirs)
    if files > min(LIMITS):
        verdict = replace(verdict, limit=round(max(limit, _NEAR * bound.value), 2))
    verdict = beside(verdict, ours, peers)
    return replace(verdict, detail=f"{verdict.detail}; {bound.claim}: {bound.value:.2f}x")


def _is_here(side: str) -> bool:
    return side != PEER or shutil.which(PEER) is not None
