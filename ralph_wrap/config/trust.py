"""Which commands of a project's configuration the user has approved.

An agent can write the configuration. So its commands run only if the user has approved exactly this text for
exactly this project. An approval is a hash in ``$XDG_STATE_HOME/ralph-wrap/trust/<project>.json``, which only
the user can write. An approval counts only if all of these are true; if not, ralph-wrap repairs nothing:

1. The directory is outside the project, because agents write in the project.
2. Directory and file belong to the user, no other user can write them, and neither is a symlink.
3. The file names the project root, and its hash is the hash of the text that is about to run. The caller
   passes the text that it has read. So the text cannot change between question and answer.

The user approves the text, not the programs that it runs: ``./setup.sh`` comes from the commit.
A program with the user's rights is not stopped: it can write the approval itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralph_wrap.errors import RalphError
from ralph_wrap.system import container, files, privileges
from ralph_wrap.system.document import DocumentFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_FORMAT = DocumentFormat(version=1, largest=1 << 16, indent=1)


def implied(environ: Mapping[str, str]) -> str | None:
    """Return why commands need no approval in this process; ``None`` if they need one."""
    if environ.get("RALPH_TRUST") == "1":
        return "RALPH_TRUST=1"
    return "PID 1 is ralph-wrap init" if container.is_of_init() else None


def digest(commands: Mapping[str, Any]) -> str:
    """Return a hash that differs if the text of any command differs.

    Arguments:
        commands: by key, with the values of the configuration.

    """
    return hashlib.sha256(json.dumps(commands, sort_keys=True).encode()).hexdigest()


def is_approved(root: Path, commands: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Return whether the user has approved exactly these commands of this project.

    Arguments:
        root: the project root, resolved.
        commands: by key.

    Raises:
        RalphError: the directory of approvals is inside the project.

    """
    path = _file(root, environ)
    try:
        if not (_is_ours(path.parent, stat.S_ISDIR) and _is_ours(path, stat.S_ISREG)):
            return False
        return _FORMAT.read(path, _facts) == (_name(root), digest(commands))
    except (OSError, ValueError):
        return False


def _facts(approval: Mapping[str, Any]) -> tuple[object, object]:
    return approval["project"], approval["sha256"]


def approve(root: Path, commands: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Approve the commands of a project; this replaces an earlier approval.

    Arguments:
        root: the project root, resolved.
        commands: by key.

    Raises:
        RalphError: the approval cannot be written.

    """
    path = _file(root, environ)
    approval = {
        "project": _name(root),
        "sha256": digest(commands),
        "commands": commands,
        "approved": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(path.parent, stat.S_ISDIR):
            raise RalphError(
                f"{path.parent} cannot keep approvals: it is a symlink, or others can write it",
                f"make it a directory of user id {os.geteuid()} alone: chmod 700",
            )
        with contextlib.suppress(FileNotFoundError):  # a replaced file would pass on its mode
            if not _is_ours(path, stat.S_ISREG):
                path.unlink()
        files.replace(path, _FORMAT.encode(approval), mode=0o600)
    except OSError as error:
        raise _unwritable(path, error) from error


def revoke(root: Path, environ: Mapping[str, str]) -> bool:
    """Delete the approval of a project, and return whether there was one.

    Arguments:
        root: the project root, resolved.

    Raises:
        RalphError: the approval cannot be deleted.

    """
    path = _file(root, environ)
    try:
        path.unlink()
        files.fsync(path.parent)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unwritable(path, error) from error
    return True


def _file(root: Path, environ: Mapping[str, str]) -> Path:
    directory = privileges.state_home(environ) / "trust"
    path = directory / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json"
    if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        raise RalphError(
            f"{path.parent} is inside the project, where agents could approve commands themselves",
            "set XDG_STATE_HOME to a directory outside the project",
        )
    return path


def _name(root: Path) -> str:
    return os.fsencode(root).decode(errors="backslashreplace")


def _is_ours(path: Path, is_kind: Any) -> bool:
    found = path.lstat()
    return is_kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _WRITABLE_BY_OTHERS


def _unwritable(path: Path, error: OSError) -> RalphError:
    return RalphError(
        f"{path} cannot be written: {error.strerror}",
        "set XDG_STATE_HOME to a writable directory outside the project, or RALPH_TRUST=1 for this run",
    )
