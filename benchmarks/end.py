"""From the agent's end to ours, against what bare git takes for the same.

Without changes that is `git worktree remove`, and with changes also `git add -A && git commit` before it. For
a large tree it is `git worktree remove --force`, which looks at no file. All worktrees are made first, and
dirty pages are written out (`sync`): a removal right after the checkout would drop pages that never reach the
disk. What a session deletes in the background is waited for, and does not count.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from scenarios import EDIT, PROGRAM, STAMP, Waiting, compare, in_turns, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scenarios import Verdict

LARGE = 100_000
SMALL = 2_000

_CLAIMS = {
    "end, no change": (SMALL, ":", 'git worktree remove "$1"', 1.0),
    "end, 200 files changed or new": (
        SMALL,
        EDIT,
        '(cd "$1" && git add -A && git commit -q -m work)\ngit worktree remove "$1"',
        1.5,
    ),
    "end of a large tree, no change": (LARGE, ":", 'git worktree remove --force "$1"', 0.1),
}
"""Number of files, what the agent does, what bare git does, and the highest ratio."""


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claims, or with a number of files those for small or large trees."""
    for number, (claim, (size, work, bare, limit)) in enumerate(_CLAIMS.items()):
        if files is None or (files >= LARGE) == (size >= LARGE):
            place = directory / f"end-{number}"
            yield _measure(place, claim, files or size, work, bare, limit, repeat)


def _measure(
    directory: Path, claim: str, files: int, work: str, bare: str, limit: float, repeat: int | None
) -> Verdict:
    times = repeat or (5 if files >= LARGE else 9)
    repository = make_repository(directory, files)
    wait = f"echo ready; read -r _ || {STAMP}"
    agent = repository.script("agent", f"{work}\n{wait}")
    other = repository.script(
        "bare", f'git worktree add --quiet -b "$2" "$1"\n(cd "$1"; {work})\n{wait}\n{bare}'
    )
    with ExitStack() as stack:
        sessions: list[Waiting] = []
        removals: list[Waiting] = []
        for number in range(times + 1):
            for waiting, command in (
                (sessions, (PROGRAM, "run", "--max-iterations", "1", "--", agent)),
                (removals, (other, f"../bare-{number}", f"bare-{number}")),
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
    return compare(f"{claim}, {files:,} files, synced on both sides", limit, *measured)
