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
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scenarios import Repository, Verdict

FILES = 2_000
CLAIMS = {"in turn": (32, ";", 1.5), "at once": (16, "&", 3.0)}
"""How bare git makes its worktrees: how many, what follows each command, and the highest ratio."""


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claims; a session that fails, or falls back to the project itself, is an error."""
    size = files or FILES
    numbers = count()
    for manner, (sessions, separator, limit) in CLAIMS.items():
        each = f"for i in $(seq {sessions}); do"
        bare = f'{each} git worktree add -b "other-$i" "../other-$i" {separator} done\nwait\n{STAMP}'
        peer = f'{each} {PEER} switch --yes --no-cd --create "other-$i" >&2 {separator} done\nwait\n{STAMP}'

        def new() -> Repository:  # each run has its own: every worktree that exists makes the next one slower
            repository = make_repository(directory / f"many-{next(numbers)}", size)
            repository.settle()
            return repository

        sides = [partial(_at_once, new, sessions), partial(_script, new, bare)]
        if shutil.which(PEER):
            sides.append(partial(_script, new, peer))
        mine, theirs, *peers = in_turns(repeat or 5, *sides)
        claim = f"{sessions} sessions at once, bare git {manner}, {size:,} files, no failure, no fallback"
        yield beside(compare(claim, limit, mine, theirs), mine, peers)


def _script(new: Callable[[], Repository], body: str) -> float:
    """Return the seconds from the start of a script to the stamp at its end."""
    repository = new()
    run = repository.run(repository.script("script", body))
    repository.settle()
    return run.stamp - run.begun


def _at_once(new: Callable[[], Repository], number: int) -> float:
    """Return the seconds from the first session's start to the last agent's first instruction."""
    repository = new()
    agent = repository.script("agent", f"{STAMP}; echo ready; read -r _ || {STAMP}")
    command = (PROGRAM, "run", "--keep-worktree", "--max-iterations", "1", "--", agent)
    with ExitStack() as stack:
        begun = time.time()
        sessions = [stack.enter_context(Waiting(repository, *command)) for _ in range(number)]
        stamps = [float(session.wait_until_ready()) for session in sessions]
        for session in sessions:
            session.go_on()
    repository.settle()
    return max(stamps) - begun
