"""Register a worktree with git, locked against ``git worktree prune``, and usable under every mount point."""

from __future__ import annotations

import os

from ralph_wrap.git import ABSOLUTE_POINTERS, pointer, run_git_again
from ralph_wrap.system import files
from ralph_wrap.worktree.ownership import SessionMark, write_mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.git import Git


def add(git: Git, path: Path, reason: str, *arguments: str | Path, mark: SessionMark | None = None) -> Path:
    """Register a worktree in an empty directory, without a checkout, and return its registration.

    Arguments:
        git: git in the repository; the caller holds its lock.
        path: the directory.
        reason: the reason of the registration's lock, for ``git worktree list``.
        arguments: further arguments of ``git worktree add``.
        mark: the mark of the session; ``None`` for a worktree without one.

    Raises:
        GitError: git refuses.
        OSError: a file cannot be read or written.

    """
    run_git_again(git, "worktree", "add", "--no-checkout", "--lock", *arguments, config=ABSOLUTE_POINTERS)
    registration = pointer.read(path)
    if mark is not None:
        write_mark(registration, mark)
    # `worktree add --reason` is younger than --lock; the file is documented (gitrepository-layout(5)).
    files.replace(registration / "locked", os.fsencode(f"{reason}\n"), sync=False)
    files.replace(path / ".git", pointer_to(registration, path), sync=False)
    return registration


def pointers_to(registration: Path, path: Path) -> tuple[bytes, bytes]:
    """Return the possible contents of the ``.git`` file of a new worktree: git's own, and ours."""
    return pointer.git_file_content(registration), pointer_to(registration, path)


def pointer_to(registration: Path, path: Path) -> bytes:
    """Return the content of a worktree's ``.git`` file, which is the same under every mount point."""
    return pointer.git_file_content(os.path.relpath(registration, path))
