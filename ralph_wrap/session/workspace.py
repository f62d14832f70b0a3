"""The workspace of an agent: its own worktree, or the plain project root."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from ralph_wrap.git import Git
    from ralph_wrap.state.registry import SessionRecord
    from ralph_wrap.system.files import FileLock
    from ralph_wrap.worktree.leaks.monitor import LeakMonitor
    from ralph_wrap.worktree.model import LinkedWorktree


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

    def look_outside(self, when: str) -> bool:
        """Log the changes outside it since the last call, and return whether there are any."""
        return self.leak_monitor is not None and self.leak_monitor.look(when)

    def git(self, git: Git) -> Git:
        """Return git for it; this git ignores linked directories."""
        return git._replace(cwd=self.path) if self.tree is None else self.tree.git(git)


def recorded(record: SessionRecord, workspace: Workspace | None) -> SessionRecord:
    """Return a session's record with its actual workspace; the plan may have been another one."""
    if workspace is None:
        return record._replace(branch=None, base=None, workspace=None)
    return record._replace(
        branch=workspace.branch,
        base=workspace.base,
        workspace=os.fspath(workspace.path),
        branch_created=workspace.tree is not None and workspace.tree.branch_created,
    )
