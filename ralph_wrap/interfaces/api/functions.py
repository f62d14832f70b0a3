"""Functions for single worktrees: list, find, add, remove. Each blocks until git is done."""

from __future__ import annotations

import os
from pathlib import Path

from ralph_wrap.config import IgnoreLocation
from ralph_wrap.errors import (
    FIRST_COMMIT,
    ConflictError,
    GitError,
    IsolationError,
    NotFoundError,
    RefusedError,
    UsageError,
)
from ralph_wrap.git import Git, WorktreeInfo, current_branch, git_environment, list_refs, resolve_commit
from ralph_wrap.git import list_worktrees as list_worktrees_in_repository
from ralph_wrap.interfaces.api.location import (
    RepositoryLocation,
    location_of,
    real,
    require_branch_name,
    resolved,
)
from ralph_wrap.state.project import RUN, WORKTREES, prepare_root
from ralph_wrap.state.registry import Registry
from ralph_wrap.worktree.create.new_worktree import CheckoutWatch
from ralph_wrap.worktree.ignore import ensure_ignored
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.managed.create import ManagedOptions
from ralph_wrap.worktree.managed.create import make as make_managed
from ralph_wrap.worktree.managed.find import find
from ralph_wrap.worktree.managed.git_config import tidy_hooks
from ralph_wrap.worktree.managed.metadata import WorktreeMetadata
from ralph_wrap.worktree.remove import remove as remove_tree
from ralph_wrap.worktree.save.result import Losses
from ralph_wrap.worktree.trash import new_name


def list_worktrees(cwd: str | os.PathLike[str] | None = None) -> list[WorktreeInfo]:
    """Return all worktrees of a repository, the main one first.

    Arguments:
        cwd: a directory of the repository; by default the current one.

    Raises:
        NotARepositoryError: the directory is not in a repository.
        RalphError: git failed.

    """
    directory = Path.cwd() if cwd is None else Path(cwd)
    try:
        return list_worktrees_in_repository(Git(directory, git_environment(os.environ)))
    except (GitError, OSError):
        location_of(directory)  # raises an error with the cause, if it finds it
        raise


def worktree_exists(path: str | os.PathLike[str], cwd: str | os.PathLike[str] | None = None) -> bool:
    """Return whether a worktree of a repository is at a path; symlinks in the path are followed.

    Arguments:
        path: relative to *cwd*.
        cwd: a directory of the repository; by default the current one.

    Raises:
        RalphError: as :func:`list_worktrees`.

    """
    wanted = resolved(path, Path.cwd() if cwd is None else Path(cwd))
    return any(real(info.path) == wanted for info in list_worktrees(cwd)) and wanted.is_dir()


def branch_exists(branch: str, cwd: str | os.PathLike[str] | None = None) -> bool:
    """Return whether a repository has a branch; ``False`` for an invalid name.

    Arguments:
        branch: its short name.
        cwd: a directory of the repository; by default the current one.

    Raises:
        NotARepositoryError: the directory is not in a repository.
        RalphError: git failed.

    """
    git = location_of(cwd).project.git
    try:
        require_branch_name(git, branch)
    except UsageError:
        return False
    return f"refs/heads/{branch}" in list_refs(git, f"refs/heads/{branch}")


def add_worktree(
    path: str | os.PathLike[str],
    branch: str,
    base: str | None = None,
    create_branch: bool = True,
    cwd: str | os.PathLike[str] | None = None,
) -> Path:
    """Add a worktree with the mark of ralph-wrap, and return its resolved path.

    Arguments:
        path: the new directory, relative to *cwd*; it must not exist.
        branch: the branch to check out in it.
        base: the start of a new branch; by default HEAD of the checkout.
        create_branch: create the branch; otherwise it must exist.
        cwd: a directory of the repository; by default the current one.

    Raises:
        UsageError: the branch name is invalid, or an existing branch was given a base.
        NotFoundError: the branch or the base does not exist.
        ConflictError: the branch or the path already exists.
        BranchBusyError: the branch is checked out in another worktree.
        RalphError: no worktree is possible here; nothing is left of the attempt.

    """
    location = location_of(cwd)
    require_branch_name(location.project.git, branch)
    exists = f"refs/heads/{branch}" in list_refs(location.project.git, f"refs/heads/{branch}")
    if exists and create_branch:
        raise ConflictError(f"branch {branch} already exists", "create_branch=False checks it out")
    if not exists and not create_branch:
        raise NotFoundError(f"there is no branch {branch}", "create_branch=True creates it")
    if base is not None and not create_branch:
        raise UsageError(f"base {base!r} is for a new branch, and {branch} exists", "leave the base out")
    return make(location, resolved(path, location.directory), branch, base, continued=not create_branch)


def make(location: RepositoryLocation, path: Path, branch: str, base: str | None, *, continued: bool) -> Path:
    """Make a worktree with the mark of ralph-wrap; add the ignore rule if it is below our directory.

    Raises:
        NotFoundError: the base does not exist.
        ConflictError: the path already exists.
        RalphError: no worktree is possible; nothing is left of the attempt.

    """
    if os.path.lexists(path):
        raise ConflictError(f"{path} already exists", "move it away, or pass another path")
    commit = location.repository.head if base is None else _commit(location.project.git, base)
    if commit is None:
        raise IsolationError("the repository has no commit yet", FIRST_COMMIT)
    if path.is_relative_to(location.project.root / WORKTREES):
        prepare_root(location.project)
        if around := location.project.around_worktrees:
            ensure_ignored(*around, IgnoreLocation.GITIGNORE)
    mark = WorktreeMetadata(
        branch=branch, base=commit, branch_created=True, origin=current_branch(location.project.git)
    )
    options = ManagedOptions(continued=continued)
    git, repository = location.project.git, location.repository
    return make_managed(git, repository, path, mark, options, CheckoutWatch()).path


def _commit(git: Git, base: str) -> str:
    commit = None if "\0" in base else resolve_commit(git, base)
    if commit is None:
        raise NotFoundError(f"base {base!r} names no commit", "to list commits: git log --oneline --all")
    return commit


def remove_worktree(
    path: str | os.PathLike[str], force: bool = False, cwd: str | os.PathLike[str] | None = None
) -> None:
    """Remove a worktree that ralph-wrap made; its branch stays, its ignored files are deleted.

    Arguments:
        path: its directory, relative to *cwd*.
        force: remove it even if work would be lost.
        cwd: a directory of the repository; by default the current one.

    Raises:
        NotFoundError: there is no worktree at the path.
        NotOursError: ralph-wrap did not make it.
        ConflictError: a user or another program has locked it (``git worktree lock``).
        RefusedError: work would be lost, or a process works in it; it stays.
        RalphError: git failed.

    """
    location = location_of(cwd)
    remove(location, resolved(path, location.directory), force=force)


def remove(location: RepositoryLocation, path: Path, *, force: bool) -> None:
    """Remove a worktree that ralph-wrap made.

    Raises:
        RalphError: as :func:`remove_worktree`.
        OSError: a file or directory of the worktree cannot be read or moved.

    """
    tree, mark = find(location.repository.common_dir, path)

    def check(losses: Losses) -> None:
        if not force and not losses.none:
            raise RefusedError(
                f"{path} would be lost with: {'; '.join(losses.lines())}",
                "commit it first; force=True removes it without",
            )

    prepare_root(location.project)
    home = Registry(location.project.root / RUN)
    home.prepare()
    # Not the checkout: it may be the worktree to remove.
    git = location.project.git._replace(cwd=tree.common_dir, git_dir=tree.common_dir)
    remove_tree(tree, git, home.trash, new_name(), check=check)
    if mark.configured:
        with repository_lock(tree.common_dir):
            tidy_hooks(tree.common_dir)
