"""Worktrees of a Python program, looked at."""

from __future__ import annotations

from pathlib import Path

from ralph_wrap import (
    current_worktree,
)
from tests.support.repo import Repo


def default_path(project: Repo, name: str) -> Path:
    """Return where a worktree of the project is by default."""
    return project.path / ".ralph/worktrees" / name


def trees_of(project: Repo) -> list[Path]:
    """Return the paths of all linked worktrees."""
    return [Path(path) for path in project.worktrees()]


def names_in(path: Path) -> list[str]:
    """Return what is in a directory."""
    return sorted(entry.name for entry in path.iterdir())


def aside(project: Repo, branch: str = "theirs") -> Path:
    """Have a worktree that is not ours."""
    path = project.path.parent / branch
    project.git("worktree", "add", "-q", "-b", branch, path)
    return path


def untracked(path: Path) -> None:
    """Leave a file that git does not track."""
    (path / "new").touch()


def current_branch() -> str | None:
    """Return the branch of the current worktree."""
    tree = current_worktree()
    return tree.branch if tree else None
