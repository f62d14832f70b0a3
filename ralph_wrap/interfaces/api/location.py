"""Where worktrees are made and looked for, and by which names."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import git
from ralph_wrap.errors import NotARepositoryError, UsageError
from ralph_wrap.state import project

if TYPE_CHECKING:
    from ralph_wrap.git import Git, Repository
    from ralph_wrap.state.project import Project

_LONGEST = 240  # bytes of a branch's name: a file system takes 255, some of them for ".lock"


class Site(NamedTuple):
    """Where worktrees are made and looked for.

    Attributes:
        directory: the caller's, which relative paths begin at.
        place: what that belongs to.
        repository: of *place*.
        where: git at the top level of its checkout.

    """

    directory: Path
    place: Project
    repository: Repository
    where: Git


def site_of(cwd: str | os.PathLike[str] | None) -> Site:
    """Return the site of a directory; ``None`` is the current one.

    Raises:
        UsageError: it is not there.
        NotARepositoryError: it belongs to no repository.
        RalphError: git is too old, or refuses the repository.

    """
    directory = Path.cwd() if cwd is None else Path(cwd)
    place = project.find(directory, os.environ)
    if place.repository is None:
        raise place.obstacle or NotARepositoryError(f"{directory} is in no git repository", "git init")
    return Site(directory.resolve(), place, place.repository, place.git(os.environ))


def resolved(path: str | os.PathLike[str], directory: Path) -> Path:
    """Return an absolute path without symlinks.

    Raises:
        UsageError: no path can be that.

    """
    try:
        return real(directory / path)
    except ValueError as error:
        raise UsageError(f"{os.fspath(path)!r} cannot be a path: {error}", "name another one") from None


def real(path: Path) -> Path:
    """Return a path without symlinks; of a loop of them, unlike ``Path.resolve()``, no more than that."""
    return Path(os.path.realpath(path))


def require_branch_name(where: Git, branch: str) -> None:
    """Make sure that a branch can have a name, on disk as well.

    Raises:
        UsageError: it cannot.

    """
    unprintable = any(unicodedata.category(letter) in {"Cc", "Cs"} for letter in branch)
    # git worktree add takes "@" for HEAD
    if (
        unprintable
        or branch == "@"
        or len(os.fsencode(branch)) > _LONGEST
        or not git.is_branch_name(where, branch)
    ):
        raise UsageError(
            f"{branch!r} cannot be the name of a branch",
            f"see git help check-ref-format; at most {_LONGEST} bytes",
        )
