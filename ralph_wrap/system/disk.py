"""Whether a disk has room: facts of the file system, because the words of git are for people."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from ralph_wrap.system.temporary import require_writable

NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
"""The errors of a full disk, and of a quota that is used up."""

_NEARLY_FULL = 1 << 20  # free bytes, below which a disk counts as full


def is_full(directory: Path) -> bool:
    """Return whether the disk of a directory has nearly no space, or no inode; false if that is unknown."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return False
    if not disk.f_blocks:  # it does not count (ramfs, a tmpfs without a limit, some of FUSE): all are zeros
        return False
    return disk.f_bavail * disk.f_frsize < _NEARLY_FULL or bool(disk.f_files and not disk.f_favail)


def tells_no_room(error: Exception) -> bool:
    """Return whether an error, or what a program has printed, is that of a full disk (``strerror(3)``)."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return True
    return any(os.strerror(number) in str(error) for number in NO_ROOM)


def first_full(directories: Iterable[Path]) -> Path | None:
    """Return the first directory whose disk has no room for us, if there is one.

    A quota does not show in the facts of a disk. So a file is written, and deleted.
    """
    for directory in directories:
        if is_full(directory):
            return directory
        try:
            require_writable(directory)
        except OSError as error:
            if error.errno in NO_ROOM:
                return directory
    return None


def full_directory(error: Exception, *directories: Path) -> Path | None:
    """Return a directory on the full disk that is the cause of an error; ``None`` if no disk is full.

    Arguments:
        error: of the system, or of git, which tells its reason only in words.
        directories: those on whose disks something was written.

    """
    full = first_full(directories)
    if full is None and isinstance(error, OSError) and error.errno in NO_ROOM:
        return Path(os.fsdecode(error.filename)).parent if error.filename is not None else directories[0]
    return full
