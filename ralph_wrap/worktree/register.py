"""Register a worktree with git, so that nobody takes it away and it is found from every mount."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralph_wrap.git import ABSOLUTE_POINTERS, pointer, run_git_again
from ralph_wrap.system import files
from ralph_wrap.worktree.ownership import SessionMark, write_mark

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.git import Git


def add(git: Git, path: Path, reason: str, *what: str | Path, mark: SessionMark | None = None) -> Path:
    """Register a worktree in an empty directory, without a checkout, and return its registration.

    Arguments:
        git: git in the repository, whose lock is held.
        path: the directory.
        reason: why the registration is locked, for ``git worktree list``.
        what: the rest of the command line of ``git worktree add``.
        mark: of a session, if it is for one.

    Raises:
        GitError: git refuses.
        OSError: something cannot be read or written.

    """
    run_git_again(git, "worktree", "add", "--no-checkout", "--lock", *what, config=ABSOLUTE_POINTERS)
    registration = pointer.read(path)
    if mark is not None:
        write_mark(registration, mark)
    # `worktree add --reason` is younger than --lock; the file is documented (gitrepository-layout(5)).
    files.replace(registration / "locked", os.fsencode(f"{reason}\n"), sync=False)
    files.replace(path / ".git", pointer_to(registration, path), sync=False)
    return registration


def pointers_to(registration: Path, path: Path) -> tuple[bytes, bytes]:
    """Return what the ``.git`` file of a new worktree may say: what git has written, and what we write."""
    return pointer.pointing_to(registration), pointer_to(registration, path)


def pointer_to(registration: Path, path: Path) -> bytes:
    """Return what the ``.git`` file of a worktree says, wherever the project is mounted."""
    return pointer.pointing_to(os.path.relpath(registration, path))
