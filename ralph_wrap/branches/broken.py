"""Refs of ours whose commit is missing or damaged: git then refuses ``git gc`` and ``git log --all``.

No save makes such a ref. A disk or another program may have left one.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from ralph_wrap.git import Git, list_refs
from ralph_wrap.git.object_reader import read_objects

OURS = ("refs/heads/ralph/", "refs/ralph/")


def broken_refs(git: Git) -> dict[str, str]:
    """Return the refs of ours whose object is missing or damaged, each with its id and what is wrong.

    Each object is read: a list of git also names one of which only the beginning is left.

    Raises:
        GitError: git failed.
        OSError: there is no room for a temporary directory.

    """
    refs = list_refs(git, *OURS)
    found = read_objects(git, [*dict.fromkeys(refs.values())])
    return {ref: f"{oid}, which {problem}" for ref, oid in refs.items() if (problem := found[oid].problem)}


def is_in_use(common_dir: Path, ref: str) -> bool:
    """Return whether a worktree of the session that has this ref is registered: its save mends the ref."""
    ids = {part.removesuffix("-wip") for part in ref.split("/")}
    registrations = common_dir / "worktrees"
    names = [path.name for path in registrations.iterdir()] if registrations.is_dir() else []
    return any(name.rpartition("-")[2] in ids for name in names)


def removal_of(root: Path, ref: str) -> str:
    """Return the command that deletes a ref with its reflog.

    Arguments:
        root: the directory of the project.

    """
    return shlex.join(["git", "-C", str(root), "update-ref", "--no-deref", "-d", ref])
