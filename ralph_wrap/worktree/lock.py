"""The lock of a repository, for git commands that fail if two of them run at once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from ralph_wrap.system import files

_TIMEOUT = 60.0  # seconds; a process has the lock for milliseconds


def repository_lock(common_dir: Path) -> AbstractContextManager[int]:
    """Hold the lock of a repository: an ``flock(2)`` on its directory, so it needs no lock file.

    The context manager returns the descriptor, for a git command that must not outlive the lock (see
    ``Git.lock``).

    Arguments:
        common_dir: the directory that all worktrees of the repository share.

    Raises:
        TimeoutError: another process had the lock all the time.
        OSError: the file system has no such locks.

    """
    return files.locked_directory(common_dir, _TIMEOUT)
