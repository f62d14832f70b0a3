"""Many sessions started at once, against as many bare `git worktree add` in turn.

The agents stay until all of them have begun, so that no session's end takes part.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING

from scenarios import PROGRAM, STAMP, Waiting, compare, in_turns, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scenarios import Repository, Verdict

FILES = 2_000
SESSIONS = 32
LIMIT = 1.0


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claim; a session that fails, or falls back to the project itself, is an error."""
    size = files or FILES
    repository = make_repository(directory / "many", size)
    agent = repository.script("agent", f"{STAMP}; echo ready; read -r _ || {STAMP}")
    bare = repository.script(
        "bare", f'for i in $(seq {SESSIONS}); do git worktree add -b "$1-$i" "../$1-$i"; done\n{STAMP}'
    )
    numbers = count()

    def ours() -> float:
        seconds = _at_once(repository, agent)
        repository.settle()
        return seconds

    def theirs() -> float:
        run = repository.run(bare, f"bare-{next(numbers)}")
        repository.settle()
        return run.stamp - run.begun

    measured = in_turns(repeat or 5, ours, theirs)
    yield compare(f"{SESSIONS} sessions at once, {size:,} files, no failure, no fallback", LIMIT, *measured)


def _at_once(repository: Repository, agent: str) -> float:
    """Return the seconds from the first session's start to the last agent's first instruction."""
    command = (PROGRAM, "run", "--keep-worktree", "--max-iterations", "1", "--", agent)
    with ExitStack() as stack:
        begun = time.time()
        sessions = [stack.enter_context(Waiting(repository, *command)) for _ in range(SESSIONS)]
        stamps = [float(session.wait_until_ready()) for session in sessions]
        for session in sessions:
            session.go_on()
    return max(stamps) - begun
