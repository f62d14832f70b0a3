"""Where temporary files go: a directory that can be written now, and never one in a checkout.

``tempfile.gettempdir`` ends with the current directory. That is usually the checkout in which the user
stands, and an agent commits what it finds there.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ralph_wrap.errors import RalphError

_USUAL = ("/tmp", "/var/tmp")  # noqa: S108 -- the names that the file system hierarchy gives them
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}

MOUNT_HINT = "docker run --tmpfs /tmp:exec"
"""The option that gives a container with a read-only root a place for temporary files."""


def candidates(environ: Mapping[str, str], outside: Collection[Path] = ()) -> Iterator[Path]:
    """Yield the directories that may take temporary files, the best first; perhaps none can be written.

    Arguments:
        environ: names the user's choice in ``TMPDIR``; a relative one would be below the current directory.
        outside: directories in which nothing may be made, resolved.

    """
    for name in dict.fromkeys((environ.get("TMPDIR", ""), *_USUAL)):
        path = Path(name)
        if path.is_absolute() and not is_inside(path, outside):
            yield path


def is_inside(path: Path, directories: Collection[Path]) -> bool:
    """Return whether a path leads into one of some directories, or to one of them."""
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(directory) for directory in directories)


def require_writable(directory: Path) -> None:
    """Write a byte to a new file, and delete it: permissions alone do not show that a disk is full.

    Raises:
        OSError: no file can be made in the directory, or it has no room for its content.

    """
    path = directory / f".ralph-wrap-{os.urandom(8).hex()}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        path.unlink()
        os.write(descriptor, b"x")
    finally:
        os.close(descriptor)


def temporary_directory(environ: Mapping[str, str] = os.environ, outside: Collection[Path] = ()) -> Path:
    """Return the directory for temporary files.

    Arguments:
        environ: names the user's choice.
        outside: directories in which nothing may be made, resolved.

    Raises:
        RalphError: none can be written.

    """
    reasons = []
    for directory in candidates(environ, outside):
        try:
            require_writable(directory)
        except OSError as error:
            reasons.append((directory, error))
        else:
            return directory
    raise RalphError(f"no directory for temporary files can be written{told(reasons)}", way_out(reasons))


def told(reasons: Collection[tuple[Path, OSError]]) -> str:
    """Return why directories cannot be used, as the end of a sentence."""
    listed = "; ".join(f"{path}: {error.strerror}" for path, error in reasons)
    return f" ({listed})" if listed else ""


def way_out(reasons: Collection[tuple[Path, OSError]]) -> str:
    """Return what makes one of some directories usable."""
    if full := [os.fspath(path) for path, error in reasons if error.errno in _NO_ROOM]:
        return f"make room there: {shlex.join(['df', '-h', *full])}"
    return f"in a container: {MOUNT_HINT}; elsewhere set TMPDIR to a directory outside the project"
