"""Many sessions started at once, against as many bare `git worktree add`: in turn, and at once.

The agents stay until all of them have begun, so that no session's end takes part.
"""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from scenarios import PEER, PROGRAM, STAMP, Waiting, beside, compare, in_turns, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from scenarios import Repository, Verdict

FILES = 2_000
CLAIMS = {"in turn": (32, ";", 1.0), "at once": (16, "&", 2.0)}
"""How bare git makes its worktrees: how many, what follows each command, and the highest ratio."""


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claims; a session that fails, or falls back to the project itself, is an error."""
    size = files or FILES
    for manner, (sessions, separator, limit) in CLAIMS.items():
        repository = make_repository(directory / f"many-{manner.replace(' ', '-')}", size)
        agent = repository.script("agent", f"{STAMP}; echo ready; read -r _ || {STAMP}")
        bare = repository.script(
            "bare",
            f'for i in $(seq {sessions}); do git worktree add -b "$1-$i" "../$1-$i" {separator} done\n'
            f"wait\n{STAMP}",
        )
        peer = repository.script(
            "peer",
            f"for i in $(seq {sessions}); do\n"
            f'{PEER} switch --yes --no-cd --create "$1-$i" >&2 {separator} done\nwait\n{STAMP}',
        )
        scripts = [bare, peer] if shutil.which(PEER) else [bare]
        mine, theirs, *peers = _measure(repository, agent, scripts, sessions, repeat or 5)
        claim = f"{sessions} sessions at once, bare git {manner}, {size:,} files, no failure, no fallback"
        yield beside(compare(claim, limit, mine, theirs), mine, peers)


def _measure(
    repository: Repository, agent: str, scripts: Sequence[str], sessions: int, repeat: int
) -> list[list[float]]:
    numbers = count()

    def ours() -> float:
        seconds = _at_once(repository, agent, sessions)
        repository.settle()
        return seconds

    def script(path: str) -> float:
        run = repository.run(path, f"other-{next(numbers)}")
        repository.settle()
        return run.stamp - run.begun

    return in_turns(repeat, ours, *(partial(script, path) for path in scripts))


def _at_once(repository: Repository, agent: str, number: int) -> float:
    """Return the seconds from the first session's start to the last agent's first instruction."""
    command = (PROGRAM, "run", "--keep-worktree", "--max-iterations", "1", "--", agent)
    with ExitStack() as stack:
        begun = time.time()
        sessions = [stack.enter_context(Waiting(repository, *command)) for _ in range(number)]
        stamps = [float(session.wait_until_ready()) for session in sessions]
        for session in sessions:
            session.go_on()
    return max(stamps) - begun
