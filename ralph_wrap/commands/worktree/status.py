"""Report the worktree of a directory, and list all worktrees; both only read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NotRequired, TypedDict

from ralph_wrap.git import current_branch, decode, list_worktrees, run_git
from ralph_wrap.state.project import WORKTREES, Project, repository_of
from ralph_wrap.worktree.managed.find import OURS, directory_of
from ralph_wrap.worktree.managed.metadata import marked


class ListedWorktree(NamedTuple):
    """One worktree of a repository, the main one included.

    Attributes:
        path: its directory.
        branch: the branch that is checked out; ``None`` for a detached HEAD.
        head: id of its commit; ``None`` before the first one.
        locked: the reason of its lock, which may be empty; ``None`` if it is not locked.
        prunable: the reason why ``git worktree prune`` would remove it; ``None`` if it would not.
        ours: ralph-wrap made it, for a session or for another program.

    """

    path: str
    branch: str | None
    head: str | None
    locked: str | None
    prunable: str | None
    ours: bool


class WorktreeStatus(TypedDict):
    """The fields of the documented tool, in its spelling: only ``isWorktree`` in a main checkout."""

    isWorktree: bool
    path: NotRequired[str]
    branch: NotRequired[str | None]
    mainRepoPath: NotRequired[str]


def status(project: Project) -> WorktreeStatus:
    """Return where a project stands.

    Raises:
        RalphError: there is no repository, or git cannot be used in it.

    """
    repository = repository_of(project)
    git = project.git
    git_dir = decode(run_git(git, "rev-parse", "--absolute-git-dir").stdout)[:-1]
    if Path(git_dir).resolve() == repository.common_dir:
        return {"isWorktree": False}
    branch = current_branch(git)
    return {
        "isWorktree": True,
        "path": os.fspath(repository.root),
        "branch": branch and branch.removeprefix("refs/heads/"),
        "mainRepoPath": os.fspath(list_worktrees(git)[0].path),
    }


def list_all(project: Project) -> list[ListedWorktree]:
    """Return every worktree of the repository, the main one first.

    Raises:
        RalphError: there is no repository, or git cannot be used in it.

    """
    common_dir = repository_of(project).common_dir
    marked_paths = set(_marked_directories(common_dir, project.root / WORKTREES))
    return [
        ListedWorktree(
            path=os.fspath(info.path),
            branch=info.branch,
            head=info.head,
            locked=info.locked,
            prunable=info.prunable,
            ours=info.path in marked_paths or (info.locked or "").startswith(OURS),
        )
        for info in list_worktrees(project.git)
    ]


def _marked_directories(common_dir: Path, worktrees: Path) -> Iterator[Path]:
    for registration in marked(common_dir):
        with contextlib.suppress(OSError):  # another process removes it at this moment
            yield directory_of(registration, worktrees)
