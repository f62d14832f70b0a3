"""Files of the user outside the project, where an agent that writes only in the project cannot change them.

There is one for each project and purpose: ``$XDG_STATE_HOME/ralph-wrap/<purpose>/<project>.json``. It counts
only if all of these are true; if not, ralph-wrap repairs nothing:

1. The directory is outside the project.
2. Directory and file belong to the user, no other user can write them, and neither is a symlink.

A program with the user's rights is not stopped: it can write the file itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ralph_wrap.errors import RalphError
from ralph_wrap.system import files, privileges

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def path_of(purpose: str, root: Path, environ: Mapping[str, str]) -> Path:
    """Return the file of a project.

    Arguments:
        purpose: the name of its directory.
        root: the project root, resolved.

    Raises:
        RalphError: the directory is inside the project.

    """
    directory = privileges.state_home(environ) / purpose
    path = directory / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json"
    if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        raise RalphError(
            f"{path.parent} is inside the project, where agents could approve commands themselves",
            "set XDG_STATE_HOME to a directory outside the project",
        )
    return path


def name_of(root: Path) -> str:
    """Return how a file names its project."""
    return os.fsencode(root).decode(errors="backslashreplace")


def counts(path: Path) -> bool:
    """Return whether only the user can have written a file.

    Raises:
        OSError: there is no such file.

    """
    return _is_ours(path.parent, stat.S_ISDIR) and _is_ours(path, stat.S_ISREG)


def write(path: Path, content: bytes) -> None:
    """Write a file that counts.

    Raises:
        RalphError: its directory does not count.
        OSError: it cannot be written.

    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_ours(path.parent, stat.S_ISDIR):
        raise RalphError(
            f"{path.parent} cannot keep approvals: it is a symlink, or others can write it",
            f"make it a directory of user id {os.geteuid()} alone: chmod 700",
        )
    with contextlib.suppress(FileNotFoundError):  # a replaced file would pass on its mode
        if not _is_ours(path, stat.S_ISREG):
            path.unlink()
    files.replace(path, content, mode=0o600)


def _is_ours(path: Path, is_kind: Any) -> bool:
    found = path.lstat()
    return is_kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _WRITABLE_BY_OTHERS
