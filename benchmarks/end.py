"""From the agent's end to ours, against what bare git takes for the same.

Without changes that is `git worktree remove`, and with changes also `git add -A && git commit` before it. For
a large tree it is `git worktree remove --force`, which looks at no file. All worktrees are made first, and
dirty pages are written out (`sync`): a removal right after the checkout would drop pages that never reach the
disk. What a session deletes in the background is waited for, and does not count.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from scenarios import EDIT, PEER, PROGRAM, STAMP, Waiting, beside, compare, in_turns, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scenarios import Verdict

LARGE = 100_000
SMALL = 2_000

_CLAIMS = {
    "end, no change": (SMALL, ":", 'git worktree remove "$1"', 1.5),
    "end, 200 files changed or new": (
        SMALL,
        EDIT,
        '(cd "$1" && git add -A && git commit -q -m work)\ngit worktree remove "$1"',
        1.75,
    ),
    "end of a large tree, no change": (LARGE, ":", 'git worktree remove --force "$1"', 0.1),
}
"""Number of files, what the agent does, what bare git does, and the highest ratio."""


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claims, or with a number of files those for small or large trees."""
    for number, (claim, (size, work, bare, limit)) in enumerate(_CLAIMS.items()):
        if files is None or (files >= LARGE) == (size >= LARGE):
            path = directory / f"end-{number}"
            yield _measure(path, claim, files or size, work, bare, limit, repeat)


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
    peer = repository.script(
        "peer",
        f'{PEER} switch --yes --no-cd --create "$2" >&2\n(cd "../project.$2"; {work})\n{wait}\n'
        f'{PEER} remove --yes --force --no-delete-branch "$2" >&2',
    )
    commands = {"run": (PROGRAM, "run", "--max-iterations", "1", "--", agent), "bare": (other,)}
    if shutil.which(PEER) and files < LARGE:
        commands["peer"] = (peer,)
    with ExitStack() as stack:
        waiting: dict[str, list[Waiting]] = {name: [] for name in commands}
        for number in range(times + 1):
            for name, command in commands.items():
                words = () if name == "run" else (f"../{name}-{number}", f"{name}-{number}")
                waiting[name].append(stack.enter_context(Waiting(repository, *command, *words)))
                waiting[name][-1].wait_until_ready()
        os.sync()

        def end(name: str) -> float:
            run = waiting[name].pop().go_on()
            repository.settle()
            return run.ended - run.stamp

        mine, theirs, *peers = in_turns(times, *(partial(end, name) for name in commands))
    verdict = compare(f"{claim}, {files:,} files, synced on both sides", limit, mine, theirs)
    return beside(verdict, mine, peers)
