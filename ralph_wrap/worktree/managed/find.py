"""Find a worktree that bears our mark, by its directory; whatever else is there is named, and not touched."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from ralph_wrap import git
from ralph_wrap.errors import ConflictError, NotFoundError, NotOursError
from ralph_wrap.system import files
from ralph_wrap.worktree.managed.metadata import Mark, read_mark
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.ownership import Owner

OURS = "ralph-wrap"
"""How the reason of every registration begins that we lock."""

LOCKED = f"{OURS} worktree "
"""The same of those that bear a mark; a session's worktree does not, whatever an agent writes."""

_SESSION = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}")


def find(common_dir: Path, path: Path) -> tuple[LinkedWorktree, Mark]:
    """Return the worktree in a directory, and its mark.

    Arguments:
        common_dir: of the repository that it has to belong to.
        path: the directory, absolute.

    Raises:
        NotFoundError: there is no worktree.
        NotOursError: it is the main checkout, belongs to another repository, or bears no mark.
        ConflictError: somebody else has locked it.

    """
    if not os.path.lexists(path):
        raise NotFoundError(f"{path} is not there", "ralph-wrap worktree list")
    path = _real(path)
    pointer = path / ".git"
    if pointer.is_dir() and not pointer.is_symlink():
        raise NotOursError(f"{path} is a main checkout, no worktree", "ralph-wrap worktree list")
    try:
        content = git.text(files.read(pointer))
    except OSError:
        raise NotFoundError(f"{path} is not a worktree", "ralph-wrap worktree list") from None
    registration = _real(path / content.removeprefix("gitdir: ").rstrip("\n").replace("\0", "?"))
    if registration == common_dir:  # git init --separate-git-dir
        raise NotOursError(f"{path} is a main checkout, no worktree", "ralph-wrap worktree list")
    if registration.parent != common_dir / "worktrees":
        raise NotOursError(f"{path} belongs to another repository", "call it there")
    mark = read_mark(registration)
    if mark is None or _SESSION.fullmatch(registration.name):  # whose agent can write marks
        raise NotOursError(
            f"{path} was not made by ralph-wrap worktree",
            "of a session: ralph-wrap rm; else: git worktree remove",
        )
    locked = registration / "locked"
    if locked.exists() and not git.text(files.read(locked)).startswith(LOCKED):
        reason = git.text(files.read(locked)).strip() or "no reason given"
        raise ConflictError(f"{path} is locked: {reason}", f"git worktree unlock {shlex.quote(str(path))}")
    return (
        LinkedWorktree(
            path=path,
            registration=registration,
            common_dir=common_dir,
            branch=mark.branch,
            base=mark.base,
            branch_created=mark.branch_created,
            config=git.file_system_config(file_mode=mark.file_mode, symlinks=mark.symlinks),
            owner=Owner(LOCKED),
        ),
        mark,
    )


def holds_its_branch(worktree: LinkedWorktree) -> bool:
    """Tell whether a worktree has the branch checked out that its mark names.

    The mark is a file that whoever works there can write, and a branch can be renamed: any other branch of
    that name is not ours to delete.
    """
    try:
        head = git.text(files.read(worktree.registration / "HEAD"))
    except OSError:
        return False
    return head == f"ref: refs/heads/{worktree.branch}\n"


def _real(path: Path) -> Path:
    """Resolve what somebody else may have written: ``Path.resolve()`` breaks on a loop of symlinks."""
    return Path(os.path.realpath(path))


def directory_of(registration: Path, worktrees: Path) -> Path:
    """Return where a worktree is, also where the project is mounted under another path than it was made at.

    Arguments:
        registration: ``.git/worktrees/<name>``.
        worktrees: where ours are.

    """
    named = Path(git.text(files.read(registration / "gitdir")).removesuffix("\n")).parent
    return named if os.path.lexists(named) else worktrees / named.name
