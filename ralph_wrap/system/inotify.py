"""Watch directories for changes (``inotify(7)``), and read files that grow.

Not every file system reports every change. There is no event for a change on another machine, or on the
other side of some mounts. So no caller waits for an event alone. A watch has a descriptor for ``poll(2)``,
and each caller also checks the files at intervals.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import sys
from typing import TYPE_CHECKING

from ralph_wrap.system import deferred

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

# <sys/inotify.h>
MODIFIED = 0x2
"""A file was written to."""
LEFT = 0x40 | 0x200
"""A file was moved away (IN_MOVED_FROM) or deleted (IN_DELETE)."""
CAME = 0x80 | 0x100
"""A file was moved in (IN_MOVED_TO) or made (IN_CREATE). A write to an existing file is neither."""
_ONLY_DIRECTORY = 0x01000000
_DONT_FOLLOW = 0x02000000

_EVENTS = 1 << 14  # bytes; each event has at most 16 and a name of 255
_PIECE = 1 << 16  # bytes of a file at once


class DirectoryWatch:
    """Watches directories for changes of files, until the context ends.

    Arguments:
        directories: the directories; a symlink or a missing directory is not watched.
        events: the kinds of change, added up.

    Attributes:
        descriptor: readable after a change; -1 without inotify (no Linux, or too many watches:
            ``/proc/sys/fs/inotify/max_user_instances``).

    """

    def __init__(self, *directories: Path, events: int) -> None:
        self.descriptor = -1
        self._watches: list[int] = []
        if sys.platform == "linux":
            library = deferred.ctypes.CDLL(None, use_errno=True)
            self.descriptor = library.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
            self.watch(*directories, events=events)

    def watch(self, *directories: Path, events: int) -> None:
        """Watch more directories, also those that were made anew at the path of earlier ones."""
        for directory in directories if self.descriptor >= 0 else ():
            library, mask = deferred.ctypes.CDLL(None), events | _ONLY_DIRECTORY | _DONT_FOLLOW
            self._watches.append(library.inotify_add_watch(self.descriptor, os.fsencode(directory), mask))

    def changed(self) -> bool:
        """Return without waiting whether there was a change since the last call."""
        has_changed = False
        with contextlib.suppress(BlockingIOError):
            while self.descriptor >= 0 and os.read(self.descriptor, _EVENTS):
                has_changed = True
        return has_changed

    def wait(self, seconds: float, reader: int = -1) -> bool:
        """Wait for a change, at most for this time.

        Arguments:
            seconds: maximum time to wait.
            reader: a descriptor that we write to; its reader may close it.

        Returns:
            Whether *reader* still has a reader.

        """
        poll = select.poll()
        if self.descriptor >= 0:
            poll.register(self.descriptor, select.POLLIN)
        if reader >= 0:
            poll.register(reader, 0)  # poll reports POLLERR and POLLHUP in any case
        gone = any(descriptor == reader for descriptor, _ in poll.poll(seconds * 1000))
        self.changed()
        return not gone

    def end(self) -> None:
        """Stop watching, but keep the descriptor, so that a later :meth:`close` does not wait.

        A ``close(2)`` waits until the kernel has freed each watch: 8 ms to 18 ms (measured, Linux 6.18).
        """
        for watch in self._watches:  # -1: its directory was missing
            deferred.ctypes.CDLL(None).inotify_rm_watch(self.descriptor, watch)
        self._watches.clear()

    def close(self) -> None:
        """Stop watching."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class GrowingFile:
    """A regular file to which another process appends; it may not exist yet, and must not be a symlink."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def read(self) -> bytes:
        """Return the next piece of the file since the last call; empty if there is nothing new.

        Raises:
            OSError: the file cannot be read, or is not a regular file.

        """
        if self._descriptor < 0:
            try:
                # O_NONBLOCK: if an agent put a FIFO there, opening it must not hang.
                self._descriptor = os.open(
                    self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                )
            except FileNotFoundError:
                return b""
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(self._path))
        return os.read(self._descriptor, _PIECE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
