"""The command after which a worktree that had to stay can be saved and removed, found by looking at it.

A message of the system or of git says why it stays. The command follows from facts alone, so it is right in
each language and with each version of git.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ralph_wrap.system import files, process_table
from ralph_wrap.system.log import Commands
from ralph_wrap.system.text import command
from ralph_wrap.worktree import git_file
from ralph_wrap.worktree.model import LinkedWorktree

_MOVED = 10  # repositories in one line


def way_out(
    worktree: LinkedWorktree, agent_id: str, *, closed: bool, nested: Sequence[str] = ()
) -> str | None:
    """Return one line to paste; ``None`` if no single line helps.

    Arguments:
        closed: the reason may be the modes of files; see :class:`ralph_wrap.worktree.remove.WorktreeOutcome`.
        nested: repositories in it that cannot be saved, below its path.

    """
    path, remove = worktree.path, command("ralph-wrap", "rm", agent_id)
    if aside := git_file.way_out(worktree, agent_id):
        return aside
    if mounts := files.mounts_in(path):
        return f"{command('sudo', 'umount', mounts[0])} && {remove}"
    if closed and (found := next(_closed(path), None)):
        if found.st_uid == os.geteuid():
            return f"{command('chmod', '-R', 'u+rwX', path)} && {remove}"
        return f"{command('sudo', 'chown', '-R', f'{os.geteuid()}:{os.getegid()}', path)} && {remove}"
    if nested:
        moves = [
            command("mv", "-T", path / inner, git_file.free_place(path, f".{inner.replace('/', '-')}"))
            for inner in _outermost(nested)[:_MOVED]
        ]
        return " && ".join([*moves, remove])
    return None


def _outermost(paths: Sequence[str]) -> list[str]:
    """Return the paths that are below no other one of them: these go with it."""
    return [path for path in paths if not any(path.startswith(f"{other}/") for other in paths)]


def remaining_ways(worktree: LinkedWorktree, root: Path, agent_id: str) -> Commands:
    """Return what helps where no single line does.

    Arguments:
        root: the project root.

    """
    pids = ",".join(str(pid) for pid, _ in process_table.occupants(worktree.path))
    return Commands.of(
        *([f"to see the processes: {command('ps', '-fp', pids)}"] if pids else []),
        f"when this reason is gone: {command('ralph-wrap', 'rm', agent_id)}",
        "to delete it with all its files, saved or not:"
        f" {command('git', '-C', root, 'worktree', 'remove', '-f', '-f', worktree.path)}",
    )


def _closed(top: Path) -> Iterator[os.stat_result]:
    """Yield the status of directories that we cannot list, of files that we cannot read, and of a fixed top.

    A read-only directory below the top is in nobody's way: the deletion changes its mode.
    """
    waiting = [os.fspath(top)]
    needed = os.R_OK | os.W_OK | os.X_OK  # a rename changes the ``..`` of the top
    while waiting:
        directory = waiting.pop()
        try:
            if not os.access(directory, needed):
                yield os.lstat(directory)
            needed = os.R_OK | os.X_OK
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False) and not os.access(entry.path, os.R_OK):
                        yield entry.stat(follow_symlinks=False)
        except OSError:  # it is gone, or is the one above
            continue
