"""The workspace of an agent: its own worktree, or the plain project root."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import ConflictError, GitError, IsolationError, TamperedError
from ralph_wrap.git import Git, pointer
from ralph_wrap.session.context import SessionContext
from ralph_wrap.state import report
from ralph_wrap.state.project import RUN, Project, repository_of
from ralph_wrap.state.registry import SessionRecord
from ralph_wrap.system.files import FileLock
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.text import near
from ralph_wrap.worktree import restore
from ralph_wrap.worktree.create import report_copies
from ralph_wrap.worktree.create.new_worktree import NewWorktree
from ralph_wrap.worktree.leaks.monitor import LeakMonitor
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.ownership import SessionMark, WorktreeOwner, session_lock

log = get_logger()


class Workspace(NamedTuple):
    """The workspace of an agent.

    Attributes:
        path: top level of the worktree, or the plain project root.
        tree: the worktree; ``None`` in the plain project root.
        lock: lock on the plain project root, so that no second session works in it.
        fallback: reason for the plain project root, if isolation was wanted.
        restored: commit of the saved work that was put back into the worktree.
        leak_monitor: detects changes outside the worktree.

    """

    path: Path
    tree: LinkedWorktree | None = None
    lock: FileLock | None = None
    fallback: str | None = None
    restored: str | None = None
    leak_monitor: LeakMonitor | None = None

    @property
    def branch(self) -> str | None:
        """The branch that the session checked out in the worktree."""
        return self.tree.branch if self.tree else None

    @property
    def base(self) -> str | None:
        """The commit that the worktree started from."""
        return self.tree.base if self.tree else None

    def directory(self, prefix: Path) -> Path:
        """Return a directory in it, or the nearest parent that exists: a commit may lack the directory."""
        found = self.path / prefix
        while not found.is_dir() and found != self.path:
            found = found.parent
        return found

    def begin_to_look_outside(self) -> None:
        """Start what :meth:`look_outside` finishes; git works meanwhile."""
        if self.leak_monitor is not None:
            self.leak_monitor.start_look()

    def look_outside(self, when: str) -> bool:
        """Log the changes outside it since the last call, and return whether there are any."""
        return self.leak_monitor is not None and self.leak_monitor.look(when)

    def git(self, project: Project) -> Git | None:
        """Return git for it, which ignores linked directories; ``None`` without a repository."""
        if project.repository is None:
            return None
        if self.tree is not None:
            return self.tree.git(project.git)
        # With the repository named, git obeys only what is harmless in its configuration.
        return project.git._replace(
            cwd=self.path,
            git_dir=pointer.git_dir_of(self.path),
            common_dir=project.repository.common_dir,
            work_tree=self.path,
        )


def monitor_leaks(context: SessionContext) -> LeakMonitor:
    """Return what logs the changes outside the workspace of a session; the caller enters it."""
    project = context.project
    return LeakMonitor(
        project.git,
        root=project.main,
        run=project.root / RUN,
        common_dir=repository_of(project).common_dir,
        workspace=context.path,
        branch=context.branch,
        cancel=context.cancel,
    )


def new_worktree(context: SessionContext, base: str) -> NewWorktree:
    """Return the worktree, or the clone, that a session gets."""
    session = context.record.session
    return NewWorktree(
        path=context.path,
        branch=context.branch,
        base=base,
        owner=WorktreeOwner(session_lock(session), SessionMark(session, context.branch)),
        continued=context.continues_branch,
        layout=context.layout,
    )


def log_created(tree: LinkedWorktree) -> None:
    """Log that the worktree of a session, or its clone, is there."""
    log.event(
        "workspace.created",
        path=os.fspath(tree.path),
        branch=tree.branch,
        base=tree.base,
        warm=tree.warm,
    )


def copy_ignored_files(context: SessionContext, tree: LinkedWorktree) -> None:
    """Copy the ignored files that the user wants in each new worktree."""
    report_copies.provide(
        tree,
        context.keeping.git,
        context.project.checkout,
        context.settings.copy,
        cancel=context.cancel,
    )


def put_back(path: Path, restore_work: Callable[[], str | None], abandon: Callable[[], object]) -> str | None:
    """Put the saved work of the earlier session back; return the commit that holds it.

    Arguments:
        path: its workspace.
        restore_work: puts it back.
        abandon: removes the workspace, after an error.

    Raises:
        ConflictError: the work conflicts with commits that the branch got since.
        TamperedError: an object of it holds something else than its name says.
        IsolationError: git failed.

    """
    try:
        saved = restore_work()
    except (ConflictError, TamperedError):
        abandon()
        raise
    except (GitError, OSError) as error:
        abandon()
        raise IsolationError(
            f"the saved work could not be put back: {error}", "is the disk full? The work is still saved"
        ) from error
    if saved:
        log.event("work.restored", f"saved work is back in {near(os.fspath(path))}", commit=saved)
    return saved


def recorded(record: SessionRecord, workspace: Workspace | None) -> SessionRecord:
    """Return a session's record with its actual workspace; the plan may have been another one."""
    if workspace is None:
        return record._replace(branch=None, base=None, workspace=None)
    tree = workspace.tree
    return record._replace(
        branch=workspace.branch,
        base=workspace.base,
        workspace=os.fspath(workspace.path),
        branch_created=tree is not None and tree.branch_created,
        worktree_inode=tree.inode if tree else 0,
        worktree_born=tree.born if tree else 0,
    )


def restore_submodules(context: SessionContext, tree: LinkedWorktree) -> None:
    """Put the saved work of submodules back, and warn about work that stays where it was saved."""
    earlier = context.settings.resumes
    found = report.read(context.project.root / RUN / "sessions" / earlier / "report.json")
    if isinstance(found, report.UnreadableReport):
        log.warning(
            "report.unreadable",
            f"saved work in submodules of session {earlier} is perhaps not in the worktree: {found.sentence}",
            "to look for it: git submodule foreach 'git for-each-ref refs/ralph/snapshots/'",
        )
        found = None
    repositories = {
        restore.SavedSubmoduleWork(saved["path"], tuple(saved["refs"])): saved["repository"]
        for saved in (found.submodules if found else ())
    }
    for work in restore.restore_submodules(
        tree,
        context.project.git,
        context.record.id,
        earlier,
        [*repositories],
        repository_of(context.project).common_dir,
    ):
        log.warning(
            "submodule.not_restored",
            f"the saved work of submodule {work.path} is not in the worktree",
            f"git -C {shlex.quote(repositories[work])} log -p {' '.join(map(shlex.quote, work.refs))}",
        )
