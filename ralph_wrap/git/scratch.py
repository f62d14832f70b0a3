"""Private temporary directories; the next process removes the directory of a killed process."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ralph_wrap.system import files, privileges, temporary

_YOUNG = 60.0  # seconds: the process that created it may not have locked it yet


@contextlib.contextmanager
def scratch_directory(parent: Path, prefix: str) -> Iterator[Path]:
    """Create a directory that only this user can use, yield it, and remove it at the end.

    Arguments:
        parent: the directory to create it in.
        prefix: the beginning of its name; old directories of dead processes with this prefix are removed.

    Raises:
        OSError: the directory cannot be created.

    """
    _tidy(parent, prefix)
    directory = parent / f"{prefix}{os.urandom(8).hex()}"
    directory.mkdir(mode=0o700)
    try:
        lock = files.try_lock(directory)
        try:
            yield directory
        finally:
            if lock:
                lock.release()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def private_directory(
    stack: contextlib.ExitStack, environ: Mapping[str, str], outside: Collection[Path], prefix: str
) -> Path:
    """Create a scratch directory outside of a project, on a disk with room; it goes with the stack.

    Arguments:
        environ: names the directories for temporary files.
        outside: the directories of the project, resolved.

    Raises:
        OSError: no directory can be created or written; it names the first that was tried.

    """
    runtime = Path(environ.get("XDG_RUNTIME_DIR", ""))
    directories = (*temporary.candidates(environ, outside), privileges.state_home(environ))
    problem: OSError | None = None
    for directory in (runtime, *directories):
        if not directory.is_absolute() or temporary.is_inside(directory, outside):
            continue
        with contextlib.ExitStack() as attempt:
            try:  # after a change of user, it may still be that of the former one
                made = attempt.enter_context(scratch_directory(directory, prefix))
                temporary.require_writable(made)  # a full disk has room for a directory
            except OSError as error:
                problem = problem or OSError(error.errno, error.strerror, os.fspath(directory))
            else:
                stack.push(attempt.pop_all())
                return made
    raise problem or FileNotFoundError(errno.ENOENT, "there is no directory for temporary files")


def size_of(directory: Path) -> int:
    """Return how many bytes the files in a directory occupy (``stat(2)``: st_blocks)."""
    return sum(path.stat().st_blocks * 512 for path in files.files_below(directory))


def _tidy(parent: Path, prefix: str) -> None:
    """Remove our old directories that no process has locked."""
    for path in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if path.is_symlink() or not path.is_dir() or status.st_uid != os.geteuid():
                continue
            if time.time() - status.st_mtime < _YOUNG or (lock := files.try_lock(path)) is None:
                continue
            shutil.rmtree(path, ignore_errors=True)
            lock.release()
