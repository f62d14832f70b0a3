"""The repository in which worktrees are made and found, and valid names of paths and branches."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import NotARepositoryError, UsageError
from ralph_wrap.git import Git, Repository, is_branch_name, require_short_name
from ralph_wrap.state.project import Project, find_project

_LONGEST = 240  # bytes of a branch's name: a file system takes 255, and git adds ".lock"


class RepositoryLocation(NamedTuple):
    """The repository in which worktrees are made and found.

    Attributes:
        directory: the caller's directory, from which relative paths start.
        project: the project of the directory.
        repository: the project's repository.

    """

    directory: Path
    project: Project
    repository: Repository


def location_of(cwd: str | os.PathLike[str] | None) -> RepositoryLocation:
    """Return the site of a directory; ``None`` stands for the current one.

    Raises:
        UsageError: the directory does not exist.
        NotARepositoryError: the directory is not in a repository.
        RalphError: git is too old, or refuses the repository.

    """
    directory = Path.cwd() if cwd is None else Path(cwd)
    project = find_project(directory, os.environ)
    if project.repository is None:
        raise project.obstacle or NotARepositoryError(f"{directory} is not in a git repository", "git init")
    return RepositoryLocation(directory.resolve(), project, project.repository)


def resolved(path: str | os.PathLike[str], directory: Path) -> Path:
    """Return an absolute path without symlinks.

    Raises:
        UsageError: the value cannot be a path.

    """
    try:
        return real(directory / path)
    except ValueError as error:
        raise UsageError(f"{os.fspath(path)!r} cannot be a path: {error}", "pass another path") from None


def real(path: Path) -> Path:
    """Return a path without symlinks; it accepts a loop of symlinks, unlike ``Path.resolve()``."""
    return Path(os.path.realpath(path))


def require_branch_name(git: Git, branch: str) -> None:
    """Check that a name is valid for a branch, in git and in the file system.

    Raises:
        UsageError: it is not valid.

    """
    unprintable = any(unicodedata.category(letter) in {"Cc", "Cs"} for letter in branch)
    # git worktree add reads "@" as HEAD
    if unprintable or branch == "@" or len(os.fsencode(branch)) > _LONGEST or not is_branch_name(git, branch):
        raise UsageError(
            f"{branch!r} cannot be the name of a branch",
            f"see git help check-ref-format; at most {_LONGEST} bytes",
        )
    require_short_name(git, branch)
