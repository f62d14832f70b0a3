"""Sync what a removal relies on: git may not have synced the agent's commits, and the worktree will go."""

from __future__ import annotations

import os
from pathlib import Path

from ralph_wrap.system import files
from ralph_wrap.worktree.model import LinkedWorktree, ObjectStamp, ObjectStamps
from ralph_wrap.worktree.save.result import SavedWork

GC_LOCK = "gc.pid"
"""In a repository: pid and host of the ``git gc`` that is running."""


def sync_repository(common_dir: Path) -> None:
    """Write all that is in a repository to the disk."""
    directories = (common_dir, common_dir / "objects")
    for directory in {directory.stat().st_dev: directory for directory in directories}.values():
        files.sync_file_system(directory)


def has_left_nothing(worktree: LinkedWorktree, saved: SavedWork) -> bool:
    """Return whether a session has certainly left nothing that a sync could bring to the disk.

    HEAD is the new branch at its base, and nothing was saved. The repository has no new object since the
    agent began.

    Arguments:
        worktree: of the session.
        saved: what was saved of it.

    """
    return (
        not (saved.paths or saved.branch or saved.snapshots or saved.inner or saved.problems)
        and saved.head is not None
        and (saved.head.branch, saved.head.commit) == (f"refs/heads/{worktree.branch}", worktree.base)
        and worktree.branch_created
        and worktree.objects is not None
        and worktree.objects == object_stamps(worktree.common_dir)
    )


def object_stamps(common_dir: Path) -> ObjectStamps | None:
    """Return inode and times of each directory with objects, which a new object or pack changes.

    Arguments:
        common_dir: the repository.

    Returns:
        ``None`` if a directory cannot be read, or if a ``git gc`` is running.

    """
    top = os.fspath(common_dir / "objects")
    try:
        with os.scandir(top) as entries:
            names = sorted(entry.name for entry in entries)
        found = [_stamp(top, name) for name in ("", *names)]
    except OSError:
        return None
    return None if os.path.lexists(common_dir / GC_LOCK) else tuple(found)


def _stamp(top: str, name: str) -> ObjectStamp:
    status = os.stat(f"{top}/{name}")  # noqa: PTH116 -- no Path for 258
    return name, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
