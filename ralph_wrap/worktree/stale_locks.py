"""Take away lock files that a killed git has left, on proof that no process holds them.

Git makes ``<file>.lock``, writes to it, and renames it. A git that dies in between leaves the lock for ever:
no later commit, ``resume`` or ``drop`` can change that branch. A git that lives may have closed the file
already, so an open file is not all that counts. The proof is that no git works in the repository, and no
other program in its git directory, as far as this process sees, after all processes of the session have
ended. Without ``/proc`` nothing is proven or removed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from ralph_wrap.git import pointer
from ralph_wrap.system import files, process_table
from ralph_wrap.worktree.model import LinkedWorktree

_AGE_OF_SHARED = 3600.0  # seconds: a maintenance that another container runs is not seen here, and takes less


def remove_stale_locks(worktree: LinkedWorktree, agent_id: str) -> list[Path]:
    """Take away the stale locks of a session: of its branches, and of HEAD and index of its worktree.

    Arguments:
        agent_id: of the session.

    Returns:
        The locks that are gone.

    """
    heads = worktree.common_dir / "refs" / "heads"
    paths = {
        heads / f"{worktree.branch}.lock",
        heads / "ralph" / f"{agent_id}-wip.lock",
        worktree.registration / "HEAD.lock",
        worktree.registration / "index.lock",
    }
    return [] if worktree.clone else _remove(worktree.common_dir, sorted(paths))


def remove_stale_maintenance_lock(common_dir: Path) -> list[Path]:
    """Take away the lock that keeps each automatic ``git gc`` from starting, if it is an hour old."""
    path = common_dir / "objects" / "maintenance.lock"
    try:
        is_old = time.time() - path.lstat().st_mtime > _AGE_OF_SHARED
    except OSError:
        return []
    return _remove(common_dir, [path]) if is_old else []


def _remove(common_dir: Path, paths: list[Path]) -> list[Path]:
    found = [(path, files.state(path)) for path in paths if _is_file(path)]
    if not found or _is_used(common_dir):
        return []
    removed = []
    for path, state in found:
        with contextlib.suppress(OSError):
            if files.state(path) == state:  # else another git has made it since
                path.unlink()
                removed.append(path)
    return removed


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _is_used(common_dir: Path) -> bool:
    """Return whether a process that we have not started may hold a lock of the repository.

    A program with a git library of its own has any name; it works in the git directory, or has a file open
    there. A git may work in any checkout, and one that we may not look at counts as one that does.
    """
    if not process_table.PROC.is_dir():
        return True
    checkouts = [*_checkouts(common_dir)]
    ours = {os.getpid(), *process_table.children(os.getpid())}
    for pid, name in process_table.names().items():
        is_git = name.startswith("git")
        directories = [common_dir, *(checkouts if is_git else ())]
        try:
            if pid not in ours and any(process_table.paths_in(pid, directory) for directory in directories):
                return True
        except PermissionError:  # it is another user's
            if is_git:
                return True
        except OSError:  # it has ended
            continue
    return False


def _checkouts(common_dir: Path) -> Iterator[Path]:
    if common_dir.name == ".git":
        yield common_dir.parent
    for registration in (common_dir / "worktrees").glob("*"):
        with contextlib.suppress(OSError):
            yield pointer.real(pointer.git_file_of(registration).parent)
