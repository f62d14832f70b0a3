"""Repositories in a branch that ``.gitmodules`` does not name: git has their commit, and none of their files.

``git add`` makes such an entry, a *gitlink*, of a directory with its own ``.git``.
"""

from __future__ import annotations

from collections.abc import Iterable

from ralph_wrap.git import Git, object_kinds, run_git
from ralph_wrap.git.config_file import parse

REPOSITORY = "a git repository that .gitmodules does not name"
"""What such an entry is, in words."""

_MODULES = ".gitmodules"


def unnamed(objects: Git, commit: str, gitlinks: Iterable[str]) -> tuple[str, ...]:
    """Return the gitlinks that ``.gitmodules`` of a commit does not name, sorted.

    Arguments:
        objects: git in the repository, or in a shadow git directory.
        commit: the commit, or its tree.
        gitlinks: paths of gitlinks in it.

    Raises:
        GitError: the commit cannot be read.

    """
    wanted = {*gitlinks}
    if wanted and object_kinds(objects, commit, [_MODULES]).get(_MODULES) == "blob":
        content = run_git(objects, "cat-file", "blob", f"{commit}:{_MODULES}").stdout
        wanted -= _paths(content)
    return tuple(sorted(wanted))


def _paths(content: bytes) -> set[str]:
    try:
        entries = parse(content)
    except ValueError:  # git finds no submodule with such a file
        return set()
    named = (value for key, value in entries if key.startswith("submodule.") and key.endswith(".path"))
    return {value.rstrip("/") for value in named if value}


def warning(branch: str, path: str) -> str:
    """Return what a branch with such an entry does not bring, in words."""
    return f"{branch}: a merge does not bring the files in {path}: it is {REPOSITORY}"
