"""Write a file anew that somebody has deleted while we have it open."""

from __future__ import annotations

import os
from pathlib import Path

_PIECE = 1 << 20  # bytes


def write_again(descriptor: int, path: Path) -> None:
    """Make a file at a path, with what a deleted file held, and let the descriptor of that name the new one.

    A file that is at the path stays, and so does the descriptor.

    Arguments:
        descriptor: open for reading and writing, with ``O_APPEND``.
        path: where the file was; its directory exists.

    Raises:
        OSError: the file cannot be made.

    """
    if os.fstat(descriptor).st_nlink or os.path.lexists(path):
        return
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    new = os.open(path, flags, 0o666)
    try:
        _copy(descriptor, new)
        os.dup2(new, descriptor, inheritable=False)
    finally:
        os.close(new)


def _copy(deleted: int, new: int) -> None:
    try:
        # proc(5): this opens a deleted file, too. Without /proc the new file begins empty.
        source = os.open(f"/proc/self/fd/{deleted}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        while piece := os.read(source, _PIECE):
            while piece:
                piece = piece[os.write(new, piece) :]
    finally:
        os.close(source)
