"""Locks that several processes share: ``flock(2)`` on a file or on a directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ralph_wrap.system.files import lock_holder

_QUIET = 3.0  # seconds until the first look at the processes that we wait for


class FileLock:
    """A held ``flock(2)``: seen across containers on one kernel, freed by the kernel when its holder dies.

    The descriptor is close-on-exec. A child that inherits it keeps the lock after our end.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._second: Path | None = None

    @property
    def inode(self) -> int:
        """Inode of the locked file; a copy of the file has another one."""
        return os.fstat(self._descriptor).st_ino

    @property
    def descriptor(self) -> int:
        """The descriptor for a child that must hold the lock too."""
        return self._descriptor

    @property
    def is_in_place(self) -> bool:
        """Whether the locked file is still the one at its path."""
        return self._descriptor >= 0 and _is_still(self._descriptor, self._path)

    def add_name(self, name: Path) -> None:
        """Give the file a second name, from which :meth:`take_again` puts it back, if that is possible.

        A file of that name is replaced. On another file system there is no such link.
        """
        with contextlib.suppress(OSError):
            name.unlink(missing_ok=True)
            name.hardlink_to(self._path)
            self._second = name

    def take_again(self) -> bool:
        """Put the file back if it was deleted or replaced, or make it anew and lock it.

        The descriptor keeps its number. A lock that was released stays so.

        Returns:
            Whether it is the same file. Children hold the lock of the old one, and no look at a new one shows
            them.

        Raises:
            OSError: the file cannot be locked, or another process holds it.

        """
        if self._descriptor < 0 or self.is_in_place or self._put_back():
            return True
        lock = try_lock(self._path)
        if lock is None:
            raise OSError(errno.EBUSY, "another process holds it", os.fspath(self._path))
        os.dup2(lock.descriptor, self._descriptor, inheritable=False)
        lock.release()  # the lock stays: it belongs to both descriptors (flock(2))
        if self._second is not None:
            self.add_name(self._second)
        return False

    def _put_back(self) -> bool:
        """Link the file back from its second name; return whether it is in its place."""
        with contextlib.suppress(OSError):
            if self._second is not None and _is_still(self._descriptor, self._second):
                self._path.unlink(missing_ok=True)
                self._path.hardlink_to(self._second)
                return self.is_in_place
        return False

    def release(self, *, unlink: bool = False) -> None:
        """Free the lock; a second call does nothing.

        Arguments:
            unlink: remove the file first, under both names, while we hold the lock. If this fails, the file
                does no harm.

        """
        if self._descriptor < 0:
            return
        if unlink:
            with contextlib.suppress(OSError):
                self._path.unlink()
            with contextlib.suppress(OSError):
                if self._second is not None and _is_still(self._descriptor, self._second):
                    self._second.unlink()
        os.close(self._descriptor)
        self._descriptor = -1


def try_lock(path: Path) -> FileLock | None:
    """Take the lock on a file, which is created, or on an existing directory, without waiting.

    Returns:
        The lock, or ``None`` if another process holds it.

    Raises:
        OSError: the file system cannot lock it.

    """
    while True:
        descriptor = _open_for_lock(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        if _is_still(descriptor, path):
            return FileLock(descriptor, path)
        os.close(descriptor)  # the last holder has removed the file meanwhile, so this lock is useless


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock on a file, without creating the file.

    Raises:
        OSError: the lock cannot be checked; a missing file counts as not locked.

    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def locked_directory(path: Path, timeout: float) -> Iterator[int]:
    """Hold the lock on an existing directory, and yield its descriptor; no file is created.

    After 3 s a warning names a holder that is stopped, and after 8 s one that still holds it.

    Arguments:
        timeout: seconds to wait for a holder that does nothing. One that works gets more time.

    Raises:
        LockedError: another process held it all the time.
        OSError: the file system has no locks on directories (NFS), or the directory does not exist.

    """
    begun, pause, wait = time.monotonic(), 0.002, None
    # Poll instead of waiting in the kernel: flock(2) has no time-out, and Python restarts it after every
    # signal. A stuck holder would block us for ever.
    while (lock := try_lock(path)) is None:
        if time.monotonic() > begun + min(_QUIET, timeout):
            wait = wait or lock_holder.LockWait(path, timeout - _QUIET)
            wait.look()
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)
    try:
        yield lock.descriptor
    finally:
        lock.release()


def _open_for_lock(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def _is_still(descriptor: int, path: Path) -> bool:
    try:
        current = path.lstat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (held.st_dev, held.st_ino) == (current.st_dev, current.st_ino)
