"""What a worktree's registration says of work that is neither files nor commits."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralph_wrap.git import decode
from ralph_wrap.git import merge as merging

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.worktree.model import LinkedWorktree


def operation(worktree: LinkedWorktree) -> str | None:
    """Return what git is in the middle of in a worktree."""
    return merging.operation(worktree.registration)


def is_replaced(registration: Path) -> bool:
    """Tell whether HEAD or index is no file any more: git would wait for the other end of a FIFO."""
    places = (registration / "HEAD", registration / "index")
    return any(os.path.lexists(place) and (place.is_symlink() or not place.is_file()) for place in places)


def unsaved_bookkeeping(worktree: LinkedWorktree) -> list[str]:
    """Return what would go with a registration and cannot be saved, one line each.

    Raises:
        OSError: it cannot be told.

    """
    found = []
    if (worktree.registration / "rebase-apply" / "applying").exists():
        found.append("git am is in progress: its patches cannot be saved")
    try:
        alternates = (worktree.common_dir / "objects" / "info" / "alternates").read_bytes()
    except FileNotFoundError:
        return found
    borrowed = [
        (worktree.common_dir / "objects" / decode(line)).resolve() for line in alternates.splitlines()
    ]
    if any(
        place.is_relative_to(going) for place in borrowed for going in (worktree.path, worktree.registration)
    ):
        found.append("the repository borrows objects from it")
    return found
