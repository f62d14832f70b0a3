"""From the start of the process to the first instruction of an agent in a warm worktree, against bare git.

Measured at the commit that the pool was filled at, and a hundred changed files later.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from itertools import count
from typing import TYPE_CHECKING

from scenarios import PROGRAM, STAMP, compare, in_turns, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scenarios import Repository, Verdict

FILES = 100_000
LIMIT = 0.1
CHANGED = 100
_PATIENCE = 600.0  # seconds until the pool must be filled
_STEP = 0.1  # seconds between two looks


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure both."""
    size = files or FILES
    for changed in (0, CHANGED):
        yield _measure(directory / f"pool-{changed}", size, repeat or 5, changed)


def _measure(directory: Path, files: int, repeat: int, changed: int) -> Verdict:
    repository = make_repository(directory, files)
    agent = repository.script("agent", STAMP)
    bare = repository.script("bare", f'git worktree add -b "$1" "../$1" && cd "../$1" && exec {agent}')
    (repository.path / ".ralph").mkdir()
    (repository.path / ".ralph" / "config.toml").write_text("pool = 1\n")
    numbers = count()

    def ours() -> float:
        _fill(repository)
        _move_on(repository, changed)
        repository.settle()
        run = repository.run(PROGRAM, "run", "--keep-worktree", "--max-iterations", "1", "--", agent)
        return run.stamp - run.begun

    def theirs() -> float:
        repository.settle()
        run = repository.run(bare, f"other-{next(numbers)}")
        return run.stamp - run.begun

    mine, others = in_turns(repeat, ours, theirs)
    return compare(f"start from the pool, {files:,} files, {changed} of them changed", LIMIT, mine, others)


def _fill(repository: Repository) -> None:
    """Wait until there is a warm worktree: the session before has the pool filled in the background."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        answer = subprocess.run(
            (PROGRAM, "pool", "--fill", "--json"),
            cwd=repository.path,
            env=repository.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        ).stdout
        if any(entry["ready"] for entry in json.loads(answer)["data"]):
            return
        time.sleep(_STEP)
    raise TimeoutError("the pool is not filled")


def _move_on(repository: Repository, changed: int) -> None:
    """Commit a change of so many files."""
    if not changed:
        return
    tracked = subprocess.run(
        ("git", "ls-files", "-z"), cwd=repository.path, stdout=subprocess.PIPE, check=True
    ).stdout.split(b"\0")
    for name in tracked[:changed]:
        path = repository.path / os.fsdecode(name)
        path.write_bytes(os.urandom(1024))
    repository.git("commit", "--quiet", "--all", "--message", "moved on")
