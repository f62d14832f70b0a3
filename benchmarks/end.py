"""From the agent's end to ours, against `git worktree remove --force`.

All worktrees are made first, and dirty pages are written out (`sync`): a removal right after the checkout
would drop pages that never reach the disk. What a session deletes in the background is waited for, and
does not count.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from scenarios import PROGRAM, STAMP, Waiting, compare, in_turns, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scenarios import Verdict

FILES = 100_000
LIMIT = 0.1


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claim."""
    size = files or FILES
    times = repeat or 5
    repository = make_repository(directory / "end", size)
    agent = repository.script("agent", f"echo ready; read -r _ || {STAMP}")
    bare = repository.script(
        "bare",
        f'git worktree add --quiet --detach "$1"\necho ready; read -r _ || {STAMP}\n'
        'exec git worktree remove --force "$1"',
    )
    with ExitStack() as stack:
        sessions: list[Waiting] = []
        removals: list[Waiting] = []
        for number in range(times + 1):
            for waiting, command in (
                (sessions, (PROGRAM, "run", "--max-iterations", "1", "--", agent)),
                (removals, (bare, f"../bare-{number}")),
            ):
                waiting.append(stack.enter_context(Waiting(repository, *command)))
                waiting[-1].wait_until_ready()
        os.sync()

        def ours() -> float:
            run = sessions.pop().go_on()
            repository.settle()
            return run.ended - run.stamp

        def theirs() -> float:
            run = removals.pop().go_on()
            repository.settle()
            return run.ended - run.stamp

        measured = in_turns(times, ours, theirs)
    yield compare(f"end, {size:,} files, synced on both sides", LIMIT, *measured)
