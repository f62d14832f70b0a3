"""Which commands of a project's configuration its user has approved.

An agent can write the configuration: its commands run only if the user has approved that very text, for that
very project. An approval is a hash, in a directory of the user's own that only they can write:
``$XDG_STATE_HOME/ralph-wrap/trust/<project>.json``. It is believed only if all of this holds, and nobody is
asked to repair anything:

1. the directory is outside the project, where no agent is meant to write;
2. directory and file belong to the user, nobody else can write them, and neither is a symlink;
3. the file names the project root, and the hash is that of the text which is about to run: whoever asks
   hands over what was already read, so that nothing can change between the question and the answer.

What is approved is the text. What it runs is not looked at: ``./setup.sh`` is whatever the commit has. And it
keeps nobody out who acts with the user's own rights: they can write the approval themselves.
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
from ralph_wrap.system import container, files

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
"""Of the file."""

_DIRECTORY = Path("ralph-wrap/trust")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_LONGEST = 1 << 16  # bytes of the file


def implied(environ: Mapping[str, str]) -> str | None:
    """Return why commands need no approval here, ``None`` if they do.

    Arguments:
        environ: our environment.

    """
    if environ.get("RALPH_TRUST") == "1":
        return "RALPH_TRUST=1"
    return "PID 1 is ralph-wrap init" if container.is_of_init() else None


def digest(commands: Mapping[str, Any]) -> str:
    """Return what tells one text of all commands from another.

    Arguments:
        commands: by key; values as they stand in the configuration.

    """
    return hashlib.sha256(json.dumps(commands, sort_keys=True).encode()).hexdigest()


def is_approved(root: Path, commands: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Tell whether the user has approved these commands of this project, and none else.

    Arguments:
        root: the project root, resolved.
        commands: by key.
        environ: our environment.

    Raises:
        RalphError: approvals would be kept inside the project.

    """
    path = _file(root, environ)
    try:
        if not (_is_ours(path.parent, stat.S_ISDIR) and _is_ours(path, stat.S_ISREG)):
            return False
        approval = json.loads(files.read(path, _LONGEST))
    except (OSError, ValueError, RecursionError):
        return False
    expected = {"version": VERSION, "project": _name(root), "sha256": digest(commands)}
    return isinstance(approval, dict) and {key: approval.get(key) for key in expected} == expected


def approve(root: Path, commands: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Approve the commands of a project, instead of those that were approved before.

    Arguments:
        root: the project root, resolved.
        commands: by key.
        environ: our environment.

    Raises:
        RalphError: the approval cannot be kept.

    """
    path = _file(root, environ)
    approval = {
        "version": VERSION,
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
        with contextlib.suppress(FileNotFoundError):  # its mode would be taken over
            if not _is_ours(path, stat.S_ISREG):
                path.unlink()
        files.replace(path, json.dumps(approval, indent=1).encode() + b"\n", mode=0o600)
    except OSError as error:
        raise _unwritable(path, error) from error


def revoke(root: Path, environ: Mapping[str, str]) -> bool:
    """Forget what was approved for a project, and tell whether there was anything.

    Arguments:
        root: the project root, resolved.
        environ: our environment.

    Raises:
        RalphError: it cannot be forgotten.

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
    given = Path(environ.get("XDG_STATE_HOME") or "")
    if not given.is_absolute():  # the XDG base directory specification: then it is to be ignored
        given = Path(environ.get("HOME") or "/", ".local/state")
    path = given / _DIRECTORY / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json"
    if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        raise RalphError(
            f"{path.parent} is inside the project, where agents could approve commands themselves",
            "set XDG_STATE_HOME to a directory outside of it",
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
        "set XDG_STATE_HOME to a writable directory outside the project, or RALPH_TRUST=1 for this once",
    )
