"""The existing worktree that a ``Worktree`` block reuses."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ralph_wrap.errors import BranchBusyError, ConflictError, RalphError
from ralph_wrap.git import WorktreeInfo, decode, list_worktrees, locate_repository, run_git
from ralph_wrap.interfaces.api.location import RepositoryLocation, real
from ralph_wrap.state.ids import is_session_id
from ralph_wrap.state.project import WORKTREES
from ralph_wrap.system.text import command
from ralph_wrap.worktree.managed.metadata import marked


def find(location: RepositoryLocation, branch: str, path: Path, *, exact: bool) -> Path | None:
    """Return the worktree to reuse, ``None`` if the caller must make a new one.

    Arguments:
        branch: the branch that the worktree must have checked out.
        path: the wanted directory.
        exact: the worktree must be at *path*.

    Raises:
        ConflictError: something else is at the path.
        BranchBusyError: the branch is checked out in a worktree that a block must not use.

    """
    main, *linked = list_worktrees(location.project.git)
    if worktree := next((info for info in linked if real(info.path) == path and path.is_dir()), None):
        if worktree.branch != branch:
            checked_out = worktree.branch or "no branch"
            raise ConflictError(
                f"{path} is on {checked_out}, not on {branch}",
                f"pass another path, or: {command('git', '-C', path, 'switch', branch)}",
            )
        _require_whole(location, path)
        return path
    holder = next((info for info in (main, *linked) if info.branch == branch), None)
    if holder is None:
        return None
    if exact or holder is main or _is_not_for_us(location, holder):
        raise BranchBusyError(f"branch {branch} is checked out in {holder.path}", "use another branch")
    if not holder.path.is_dir():
        raise ConflictError(
            f"branch {branch} is checked out in {holder.path}, which does not exist",
            "restore this directory, or: git worktree prune",
        )
    _require_whole(location, holder.path)
    return real(holder.path)


def _is_not_for_us(location: RepositoryLocation, holder: WorktreeInfo) -> bool:
    """Return whether a worktree belongs to a session, or is the checkout of the caller."""
    project = location.project
    session = is_session_id(holder.path.name) and holder.path.parent.name == WORKTREES.name
    return session or (real(holder.path) == project.checkout and not project.is_nested)


def _require_whole(location: RepositoryLocation, path: Path) -> None:
    """Check that a directory is the worktree that git registered there, and that its checkout is complete.

    Raises:
        ConflictError: it is another directory, or the checkout is incomplete.

    """
    with contextlib.suppress(RalphError, OSError):
        git = location.project.git._replace(cwd=path)
        repository = locate_repository(git)
        if (repository.root, repository.common_dir) == (real(path), location.repository.common_dir):
            answer = run_git(git, "rev-parse", "--absolute-git-dir").stdout
            registration = real(Path(decode(answer).removesuffix("\n")))
            is_marked = registration in marked(location.repository.common_dir)
            if not is_marked or (registration / "index").exists():
                return
    raise ConflictError(
        f"{path} is not a complete worktree of {location.repository.root}",
        "if no process creates it at this moment: " + command("git", "worktree", "remove", "-f", "-f", path),
    )
