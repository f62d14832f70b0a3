"""Processor time of a whole session, against bare `git worktree add` and `git worktree remove`.

All processes count, also those that go on after the command has ended: a session deletes its worktree in
the background. Bare git commits the changes, and worktrunk, if it is installed, does not save them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios import CHANGED, EDIT, PEER, PROGRAM, beside, compare, in_turns, make_repository

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scenarios import Repository, Verdict

FILES = 2_000
LIMITS = {"no change": 1.55, f"{2 * CHANGED} files changed or new": 1.35}
"""Highest ratio by what the agent does: what worktrunk 0.67 took, 0.62 s to 0.40 s, and 0.82 s to 0.61 s."""


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claim for an agent without and with changes."""
    for claim, work in zip(LIMITS, ("true", EDIT), strict=True):
        size = files or FILES
        repository = make_repository(directory / claim.replace(" ", "-"), size)
        yield _measure(repository, claim, work, size, repeat or 9)


def _measure(repository: Repository, claim: str, work: str, files: int, repeat: int) -> Verdict:
    agent = repository.script("agent", f"{work}\n:")
    commit = "git add -A && git commit -q -m work" if work == EDIT else ":"
    bare = repository.script(
        "bare",
        f'git worktree add -q -b "$1" "../$1"\n(cd "../$1" && {agent} && {commit})\n'
        'git worktree remove --force "../$1"',
    )
    peer = repository.script(
        "peer",
        f'{PEER} switch --yes --no-cd --create "$1" && (cd "../project.$1" && {agent})\n'
        f'{PEER} remove --yes --force --no-delete-branch --foreground "$1"',
    )
    numbers = count()

    def ours() -> float:
        return _processor_time(repository, PROGRAM, "run", "--max-iterations", "1", "--", agent)

    def script(path: str) -> float:
        return _processor_time(repository, path, f"other-{next(numbers)}")

    sides: list[Callable[[], float]] = [ours, lambda: script(bare)]
    if shutil.which(PEER):
        sides.append(lambda: script(peer))
    mine, theirs, *peers = in_turns(repeat, *sides)
    verdict = compare(f"processor time, {files:,} files, {claim}", LIMITS[claim], mine, theirs)
    return beside(verdict, mine, peers)


def _processor_time(repository: Repository, *command: str) -> float:
    """Run a command, wait for all processes that it has left, and return their seconds of processor time."""
    measured = subprocess.run(
        (sys.executable, Path(__file__).with_name("processor_time.py"), *command),
        cwd=repository.path,
        env=repository.environ,
        stdout=subprocess.PIPE,
        check=True,
    )
    repository.settle()
    return float(measured.stdout)
