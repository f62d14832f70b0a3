"""A temporary directory for objects; the next process removes the directory of a killed process."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.system import files

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = "ralph-wrap-merges-"
_YOUNG = 60.0  # seconds: the process that created it may not have locked it yet


@contextlib.contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """Create a directory, yield it, and remove it at the end.

    Arguments:
        parent: the directory to create it in.

    Raises:
        OSError: the directory cannot be created.

    """
    _tidy(parent)
    directory = Path(tempfile.mkdtemp(prefix=_NAME, dir=parent))
    try:
        lock = files.try_lock(directory)
        try:
            yield directory
        finally:
            if lock:
                lock.release()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def size_of(directory: Path) -> int:
    """Return how many bytes the files in a directory occupy (``stat(2)``: st_blocks)."""
    paths = (Path(parent, name) for parent, _, names in os.walk(directory) for name in names)
    return sum(path.stat().st_blocks * 512 for path in paths)


def _tidy(parent: Path) -> None:
    """Remove our old directories that no process has locked."""
    for path in parent.glob(f"{_NAME}*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if path.is_symlink() or not path.is_dir() or status.st_uid != os.geteuid():
                continue
            if time.time() - status.st_mtime < _YOUNG or (lock := files.try_lock(path)) is None:
                continue
            shutil.rmtree(path, ignore_errors=True)
            lock.release()
