"""The file with the prompt, which a session reads again in each iteration."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_STREAMS = ("/dev/fd/", "/dev/stdin", "/proc/")  # what a shell passes for <(command) is /dev/fd/63


def read(path: Path) -> bytes:
    """Return the prompt in a file.

    Raises:
        OSError: the file cannot be read, or is a FIFO or a device, which could block the session for ever.

    """
    descriptor = _open(path)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def check(path: Path) -> None:
    """Check that a prompt file can be read, and read nothing of it.

    Raises:
        OSError: as for :func:`read`.

    """
    os.close(_open(path))


def _open(path: Path) -> int:
    if os.fspath(path).startswith(_STREAMS):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):
        os.close(descriptor)
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        reason = os.strerror(code) if stat.S_ISDIR(mode) else "not a regular file"
        raise OSError(code, reason, os.fspath(path))
    return descriptor
