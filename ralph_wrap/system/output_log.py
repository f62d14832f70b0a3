"""Keep an output log below a size: its beginning and its end stay, with a mark between them.

**Why nothing else is lost.** The shorter log is a new file that takes the place of the old one in one step
(``rename(2)``), after it is on the disk. So a kill or a full disk at any point leaves one whole log, the old
or the new one. Whoever still reads the old file reads it to its end, and then goes on in the new one at the
same byte of the output: the mark says how many bytes are missing before it.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.system import files

_HEAD = 1 << 20
"""Bytes at the beginning that stay; fewer, so that a line is whole."""

_PIECE = 1 << 20  # bytes that a copy holds in memory
_LONGEST_LINE = 1 << 20  # bytes that are searched for the end of a line
_MARK = re.compile(
    rb"(\n?)ralph-wrap: ([0-9]{1,18}) bytes of output are missing here, after the first ([0-9]{1,18}): "
    rb"max_output\n"
)
_LONGEST_MARK = 160


class _Mark(NamedTuple):
    """The line in a log that says what is missing: its first byte, the next one after it, and how much."""

    start: int
    end: int
    missing: int


def shorten(descriptor: int, path: Path, limit: int) -> int:
    """Replace a log by its beginning, a mark, and its last bytes.

    Arguments:
        descriptor: of the log, open for reading.
        path: of the log.
        limit: half of it stays of the end. At least 4 MB: the beginning and the end have to be clearly less.

    Returns:
        A descriptor of the new log, for reading and for appending.

    Raises:
        OSError: the log is as it was. ``ESTALE``: another file is at the path.

    """
    before = os.fstat(descriptor)
    if not os.path.samestat(before, path.lstat()):
        raise OSError(errno.ESTALE, "the file has been replaced", os.fspath(path))
    mark = _find_mark(descriptor) or _new_mark(descriptor)
    start = _start_of_line(descriptor, max(mark.end, before.st_size - limit // 2))
    missing = mark.missing + start - mark.end
    temporary = files.temporary_path(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    new = os.open(temporary, flags, 0o600)
    try:
        _copy(descriptor, new, 0, mark.start)
        words = f"{missing} bytes of output are missing here, after the first {mark.start}: max_output"
        newline = b"" if ends_line(descriptor, mark.start) else b"\n"
        files.write_all(new, newline + f"ralph-wrap: {words}\n".encode())
        _copy(descriptor, new, start, before.st_size)
        files.copy_mode_and_owner(new, path)
        os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
        os.fsync(new)
        temporary.replace(path)
    except BaseException:
        os.close(new)
        temporary.unlink(missing_ok=True)
        raise
    return new


def length_at_most(limit: int) -> int:
    """Return the largest size of a log that was shortened, in bytes."""
    return _HEAD + _LONGEST_MARK + limit // 2


def place_in_successor(old: int, new: int) -> int | None:
    """Return where to go on in the file that has replaced a log, after the old one is read to its end.

    If what follows is missing in the new file, that is where its mark begins.

    Arguments:
        old: a descriptor of the old file.
        new: of the new one.

    Returns:
        The number of a byte; ``None`` if the new file is not complete yet.

    Raises:
        OSError: one of them cannot be read.

    """
    size = os.fstat(old).st_size
    before, after = _find_mark(old), _find_mark(new)
    if after is None:
        return size if before is None else None
    output = size if before is None else size - (before.end - before.start) + before.missing
    if output < after.start:
        return output
    place = output - after.missing + (after.end - after.start)
    return place if place >= after.end else after.start


def ends_line(descriptor: int, end: int) -> bool:
    """Return whether a line of a file ends before a byte."""
    return os.pread(descriptor, 1, end - 1) == b"\n" if end else True


def _find_mark(descriptor: int) -> _Mark | None:
    """Return the mark in a log; it says where it stands, so that no line of an agent is one by chance."""
    beginning = os.pread(descriptor, _HEAD + _LONGEST_MARK, 0)
    for found in _MARK.finditer(beginning, _HEAD // 2):
        head = int(found[3])
        if head in {found.start(), found.end(1)}:
            return _Mark(head, found.end(), int(found[2]))
    return None


def _new_mark(descriptor: int) -> _Mark:
    """Return where the mark of a log without one goes: after a whole line, if none is too long."""
    beginning = os.pread(descriptor, _HEAD, 0)
    end = beginning.rfind(b"\n", _HEAD // 2) + 1 or len(beginning)
    return _Mark(end, end, 0)


def _start_of_line(descriptor: int, start: int) -> int:
    """Return where the first line begins at a byte or behind it; the byte itself if the line is too long."""
    return start + max(0, os.pread(descriptor, _LONGEST_LINE, start - 1).find(b"\n"))


def _copy(source: int, target: int, start: int, end: int) -> None:
    while start < end and (piece := os.pread(source, min(_PIECE, end - start), start)):
        files.write_all(target, piece)
        start += len(piece)
