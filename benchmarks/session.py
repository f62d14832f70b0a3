"""Processor time of a whole session, against bare git, and the memory of one whose agent is silent.

All processes count, also those that go on after the command has ended: a session deletes its worktree in
the background. Bare git commits the changes, and worktrunk, if it is installed, does not save them.

Memory is the proportional set size (`proc(5)`: smaps_rollup): pages shared with others count by share. Other
running Pythons make it smaller, so the private part is shown too, which nothing outside can change.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios import (
    CHANGED,
    EDIT,
    PEER,
    PROGRAM,
    Verdict,
    Waiting,
    beside,
    compare,
    in_turns,
    make_repository,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scenarios import Repository

FILES = 2_000
LIMITS = {"no change": 3.5, f"{2 * CHANGED} files changed or new": 2.5}
"""Highest ratio by what the agent does."""

MEMORY = 32.0  # MB of 1,000,000 bytes, of a session whose agent is silent
_SETTLED = 1.0  # seconds between two reads
_READS = 5


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claim for an agent without and with changes."""
    for claim, work in zip(LIMITS, ("true", EDIT), strict=True):
        size = files or FILES
        repository = make_repository(directory / claim.replace(" ", "-"), size)
        yield _measure(repository, claim, work, size, repeat or 9)
    yield _measure_memory(make_repository(directory / "idle", files or FILES), repeat or 3)


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


def _measure_memory(repository: Repository, repeat: int) -> Verdict:
    shared: list[float] = []
    private: list[float] = []
    agent = repository.script("agent", "echo ready; exec sleep 3600")
    for _ in range(repeat):
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
    return Verdict("idle session, proportional set size", statistics.median(shared), MEMORY, " MB", detail)


def _megabytes(rollup: str, name: str) -> float:
    found = re.search(rf"^{name}: +(\d+) kB$", rollup, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


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
