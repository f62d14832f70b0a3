"""Find a worktree with our mark by its directory; anything else is an error that names it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from ralph_wrap.errors import ConflictError, NotFoundError, NotOursError
from ralph_wrap.git import decode, file_system_config, pointer
from ralph_wrap.state.ids import is_session_id
from ralph_wrap.system import files
from ralph_wrap.system.log import Commands
from ralph_wrap.worktree.managed.metadata import WorktreeMetadata, read_mark
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.ownership import WorktreeOwner

OURS = "ralph-wrap"
"""The start of the lock reason in each registration that we lock."""

LOCKED = f"{OURS} worktree "
"""The start of the lock reason of worktrees with a mark; that of a session's worktree differs."""


def find(common_dir: Path, path: Path) -> tuple[LinkedWorktree, WorktreeMetadata]:
    """Return the worktree in a directory, and its mark.

    Arguments:
        common_dir: the common directory of its repository.
        path: the absolute path of the directory.

    Raises:
        NotFoundError: there is no worktree.
        NotOursError: it is the main checkout, belongs to another repository, or has no mark.
        ConflictError: a user or another program has locked it (``git worktree lock``).

    """
    if not os.path.lexists(path):
        raise NotFoundError(f"{path} does not exist", "ralph-wrap worktree list")
    path = pointer.real(path)
    if (path / ".git").is_dir() and not (path / ".git").is_symlink():
        raise NotOursError(f"{path} is a main checkout, no worktree", "ralph-wrap worktree list")
    try:
        registration = pointer.read(path)
    except OSError:
        raise NotFoundError(f"{path} is not a worktree", "ralph-wrap worktree list") from None
    if registration == common_dir:  # git init --separate-git-dir
        raise NotOursError(f"{path} is a main checkout, no worktree", "ralph-wrap worktree list")
    if registration.parent != common_dir / "worktrees":
        raise NotOursError(f"{path} belongs to another repository", "run the command in the other repository")
    mark = read_mark(registration)
    if mark is None or is_session_id(registration.name):  # a session's agent can write marks
        raise NotOursError(
            f"{path} was not made by ralph-wrap worktree",
            Commands.of(
                "for a session's: ralph-wrap rm ID", f"else: git worktree remove {shlex.quote(str(path))}"
            ),
        )
    locked = registration / "locked"
    if locked.exists() and not decode(files.read(locked)).startswith(LOCKED):
        reason = decode(files.read(locked)).strip() or "no reason given"
        raise ConflictError(f"{path} is locked: {reason}", f"git worktree unlock {shlex.quote(str(path))}")
    return (
        LinkedWorktree(
            path=path,
            registration=registration,
            common_dir=common_dir,
            branch=mark.branch,
            base=mark.base,
            branch_created=mark.branch_created,
            config=file_system_config(file_mode=mark.file_mode, symlinks=mark.symlinks),
            owner=WorktreeOwner(LOCKED),
        ),
        mark,
    )


def holds_its_branch(worktree: LinkedWorktree) -> bool:
    """Return whether a worktree has the branch of its mark checked out.

    An agent in the worktree can write the mark, and a user can rename a branch. We must not delete another
    branch that has this name.
    """
    try:
        head = decode(files.read(worktree.registration / "HEAD"))
    except OSError:
        return False
    return head == f"ref: refs/heads/{worktree.branch}\n"


def directory_of(registration: Path, worktrees: Path) -> Path:
    """Return the directory of a worktree, even if the project is now mounted under another path.

    Arguments:
        registration: ``.git/worktrees/<name>``.
        worktrees: the directory of our worktrees.

    """
    named = pointer.git_file_of(registration).parent
    return named if os.path.lexists(named) else worktrees / named.name
