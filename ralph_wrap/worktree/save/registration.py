"""Find unsaved work in a worktree's registration that is neither a file nor a commit."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ralph_wrap.git import decode, merge
from ralph_wrap.system import files
from ralph_wrap.worktree.create.replica import problems_of
from ralph_wrap.worktree.model import LinkedWorktree


def operation(worktree: LinkedWorktree) -> str | None:
    """Return the git operation that is in progress in a worktree, ``None`` if there is none."""
    return merge.operation(worktree.registration)


def is_replaced(registration: Path) -> bool:
    """Return whether HEAD or index is not a file any more: on a FIFO git would wait for a writer."""
    paths = (registration / "HEAD", registration / "index")
    return any(os.path.lexists(path) and (path.is_symlink() or not path.is_file()) for path in paths)


def require_plain(worktree: LinkedWorktree) -> None:
    """Make sure that git works in this worktree, and not where an agent leads it.

    Raises:
        OSError: something else is in the place of the worktree, or of a file of its registration.

    """
    if worktree.path.is_symlink():  # it may lead to the project, where the files are the user's
        raise OSError(errno.ELOOP, "a symlink is in the worktree's place", str(worktree.path))
    if is_replaced(worktree.registration):
        raise OSError(errno.EINVAL, "HEAD or index is no file any more", str(worktree.registration))


def unsaved_bookkeeping(worktree: LinkedWorktree) -> list[str]:
    """Return one line for each thing in a registration that cannot be saved.

    Raises:
        OSError: a file cannot be read.

    """
    found = problems_of(worktree) if worktree.clone else []
    if (worktree.registration / "rebase-apply" / "applying").exists():
        found.append("git am is in progress: its patches cannot be saved")
    try:
        alternates = files.read(worktree.common_dir / "objects" / "info" / "alternates")
    except FileNotFoundError:
        return found
    borrowed = [
        (worktree.common_dir / "objects" / decode(line)).resolve() for line in alternates.splitlines()
    ]
    if any(
        objects.is_relative_to(directory)
        for objects in borrowed
        for directory in (worktree.path, worktree.registration)
    ):
        found.append("the repository borrows objects from it")
    return found
