"""Remove a worktree that was made for another program, and its branch unless the caller keeps it.

Order: first look for all work that could be lost, and name it. Then ``worktree.remove`` removes the worktree.
Then delete the branch, if it is still at the same commit. A branch that we did not make, or that is checked
out elsewhere, stays with a warning. Last, remove our lines for hooks from the shared configuration.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.commands.worktree.prepare import home_of, recover
from ralph_wrap.errors import GitError, RalphError, RefusedError
from ralph_wrap.git import CommitSummary, Git, commits_only_on, delete_ref, list_refs, worktree_holding
from ralph_wrap.git.read_back import find_damage, other_tips
from ralph_wrap.state.project import Project, repository_of
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.text import and_more, command
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.managed.find import find, holds_its_branch
from ralph_wrap.worktree.managed.git_config import tidy_hooks
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.remove import remove
from ralph_wrap.worktree.save.result import Losses
from ralph_wrap.worktree.trash import new_name

log = get_logger()

_SHOWN = 20  # commits that a refusal lists


class CleanedWorktree(NamedTuple):
    """The result; the fields of the documented tool, in its spelling."""

    removed: bool
    branchDeleted: bool  # noqa: N815
    path: str


def cleanup(
    project: Project,
    path: Path,
    *,
    cwd: Path,
    keep_branch: bool,
    force: bool,
) -> CleanedWorktree:
    """Remove a worktree that ralph-wrap made.

    Arguments:
        path: the absolute path of the worktree.
        cwd: the caller's working directory.
        force: remove it even if work would be lost.

    Raises:
        NotFoundError: there is no worktree at the path.
        NotOursError: ralph-wrap did not make it.
        ConflictError: a user or another program has locked it (``git worktree lock``).
        RefusedError: work would be lost, or a process works in it; nothing has changed.
        RalphError: the removal failed.

    """
    common_dir = repository_of(project).common_dir
    recover(project)
    tree, _ = find(common_dir, path)
    if cwd.resolve().is_relative_to(tree.path):
        raise RefusedError(
            f"{tree.path} stays: the working directory is in it",
            f"first go to another directory: {command('cd', project.root)}",
        )
    # Not the checkout: it may be the worktree to remove.
    git = project.git._replace(cwd=common_dir, git_dir=common_dir)
    tip = None if keep_branch else _tip_to_delete(tree, git)
    _remove(project, tree, git, tip, force=force)
    deleted = tip is not None and _delete_branch(git, tree, tip, force=force)
    _tidy(common_dir)
    return CleanedWorktree(removed=True, branchDeleted=deleted, path=os.fspath(tree.path))


def _remove(project: Project, tree: LinkedWorktree, git: Git, tip: str | None, *, force: bool) -> None:
    """Remove a worktree, unless work would be lost with it and with its branch at a tip."""
    if tip is not None and not force and (damage := _damage(git, tree, tip)):
        raise RefusedError(
            f"{tree.path} stays, since the commits of its branch cannot be read: {damage}",
            "--keep-branch keeps the commits; --force removes it with all its work",
        )
    own_commits = [] if tip is None or force else commits_only_on(git, tree.branch, tip)

    def check(losses: Losses) -> None:
        if not force:
            _require_no_loss(tree, losses, own_commits)

    trash = home_of(project).trash
    try:
        losses = remove(tree, git, trash, new_name(), check=check)
    except OSError as error:
        raise RalphError(
            f"{tree.path} stays: {error.strerror}: {os.fsdecode(error.filename or '')}"
        ) from error
    if losses.ignored_files:
        log.event(
            "worktree.removed",
            f"ignored files deleted with {tree.path}: {losses.ignored_files}",
            ignored=losses.ignored_files,
        )


def _damage(git: Git, tree: LinkedWorktree, tip: str) -> str | None:
    """Return what is damaged of the commits of a branch: a list of them could be too short."""
    return find_damage(git, [tip], other_tips(git, f"refs/heads/{tree.branch}"))


def _require_no_loss(tree: LinkedWorktree, losses: Losses, own_commits: Sequence[CommitSummary]) -> None:
    """Check that nothing is lost with a worktree, and with the commits that only its branch has."""
    if losses.none and not own_commits:
        return
    lines = [*losses.lines(), *(_named(tree, commit) for commit in own_commits[:_SHOWN])]
    lines += and_more(len(own_commits), _SHOWN, " commits")
    instead = "--keep-branch keeps the commits; " if losses.none else ""
    raise RefusedError(
        f"{tree.path} stays, this would be lost: {'; '.join(lines)}",
        f"{instead}--force removes it with all its work",
    )


def _tip_to_delete(tree: LinkedWorktree, git: Git) -> str | None:
    """Return the tip of the branch to delete; ``None`` if the branch does not exist, or is not ours."""
    ref = f"refs/heads/{tree.branch}"
    if not tree.branch_created or not holds_its_branch(tree):
        log.warning(
            "branch.kept",
            f"branch {tree.branch} stays: it existed before the worktree, or is no longer checked out in it",
        )
        return None
    return list_refs(git, ref).get(ref)


def _named(tree: LinkedWorktree, commit: CommitSummary) -> str:
    return f"commit only on {tree.branch}: {commit.id[:12]} {commit.subject}"


def _delete_branch(git: Git, tree: LinkedWorktree, tip: str, *, force: bool) -> bool:
    ref = f"refs/heads/{tree.branch}"
    reason = ""
    try:
        with repository_lock(tree.common_dir):
            if holder := worktree_holding(git, ref):
                reason = f"it is checked out in {holder}"
            elif not force and (damage := _damage(git, tree, tip)):
                reason = damage
            elif not force and commits_only_on(git, tree.branch, tip):
                reason = "it has commits that no other branch holds"
            else:
                delete_ref(git, ref, tip)
    except GitError:
        reason = "it has moved meanwhile"
    except OSError as error:
        reason = f"cannot lock the repository: {error.strerror}"
    if reason:
        log.warning("branch.kept", f"branch {tree.branch} stays: {reason}")
    return not reason


def _tidy(common_dir: Path) -> None:
    """Remove our lines from the configuration; a failure is only a warning, since the worktree is gone."""
    try:
        with repository_lock(common_dir):
            tidy_hooks(common_dir)
    except (RalphError, OSError) as error:
        log.warning("configuration.kept", f"{common_dir}/config keeps our lines for hooks: {error}")
