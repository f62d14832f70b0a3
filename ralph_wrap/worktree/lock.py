"""The repository-wide lock around what git itself cannot do several times at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.system import files

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

_TIMEOUT = 60.0  # seconds; it is held for milliseconds


def repository_lock(common_dir: Path) -> AbstractContextManager[int]:
    """Hold the lock of a repository: an ``flock(2)`` on its directory, so that no file is made in it.

    What is entered is its descriptor, for a git that must not outlive the lock (see ``Git.lock``).

    Arguments:
        common_dir: what all worktrees of the repository share.

    Raises:
        TimeoutError: somebody else held it all the time.
        OSError: the file system has no such locks.

    """
    return files.locked_directory(common_dir, _TIMEOUT)
