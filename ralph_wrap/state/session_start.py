"""How a session was started: ``start.json`` in its directory, which ``ralph-wrap resume`` reads.

An agent can write this file, and it names a command. So the session signs it with a key that is outside the
project (``$XDG_STATE_HOME/ralph-wrap/key``), as the approvals of ``ralph-wrap trust`` are. The user sees a
file with a wrong signature, and ralph-wrap starts nothing from it without the user's word.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap.state.project import Project
from ralph_wrap.state.record import FETCHED_START, fetched_field
from ralph_wrap.system import files, privileges
from ralph_wrap.system.document import DocumentFormat, convert_fields

_KIND = "start"  # of what is signed here
START = "start.json"
"""The name of the file in a session's directory."""

_FORMAT = DocumentFormat(version=1, largest=64 << 20, indent=1)
_KEY_SIZE = 32  # bytes
_ACCESSIBLE_TO_OTHERS = 0o077


class SessionStart(NamedTuple):
    """What the user started a session with, apart from the configuration file.

    Attributes:
        options: text by the name of each option of the command line, the environment, or a job. A path is
            relative to the project root if it is below it.
        command: the words of the agent's command; empty if an option names the agent.
        directory: where the user stood: relative to the project root, or absolute.

    """

    options: Mapping[str, str]
    command: tuple[str, ...]
    directory: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return self._asdict() | {"options": dict(self.options)}


class FoundStart(NamedTuple):
    """A file that says how a session was started, and whether it is as the session wrote it."""

    start: SessionStart
    is_genuine: bool


def write(start: SessionStart, directory: Path, project: Project) -> None:
    """Write how a session was started, signed if there is a place for a key.

    Arguments:
        directory: of the session.

    Raises:
        OSError: the file cannot be written.

    """
    fields = start.to_dict() | {"signature": signature(_KIND, start, directory, project)}
    files.replace(directory / START, _FORMAT.encode(fields), sync=False, mode=0o600)


def read(directory: Path, project: Project) -> FoundStart | None:
    """Return how a session was started; ``None`` if no file says it.

    The record of a session of another machine says it without a signature: the user must approve it.

    Arguments:
        directory: of the session.

    """
    try:
        return _FORMAT.read(directory / START, lambda loaded: _checked(loaded, directory, project))
    except FileNotFoundError:
        return _foreign(directory, project)
    except (OSError, ValueError):
        return None


def _foreign(directory: Path, project: Project) -> FoundStart | None:
    fields = fetched_field(directory, FETCHED_START)
    try:
        return None if fields is None else _checked({**fields, "signature": ""}, directory, project)
    except (TypeError, ValueError):
        return None


def _checked(loaded: dict[str, Any], directory: Path, project: Project) -> FoundStart:
    start = convert_fields(loaded, SessionStart)
    return FoundStart(start, is_signed(_KIND, start, directory, project, loaded["signature"]))


def relative(path: Path, project: Project) -> str:
    """Return a path relative to the project root if it is below it, so that the project can be moved."""
    return os.fspath(path.relative_to(project.root) if path.is_relative_to(project.root) else path)


def signature(kind: str, values: Iterable[Any], directory: Path, project: Project) -> str:
    """Return the signature of what we write in a directory; it holds for this directory and kind alone.

    Arguments:
        kind: a word for what is signed: the same values may mean something else elsewhere.
        values: the content to sign, as JSON can hold it.
        directory: of the file.

    Returns:
        The keyed hash; empty if there is no place for a key.

    """
    return _keyed_hash(kind, values, directory, _key(project, make=True))


def is_signed(kind: str, values: Iterable[Any], directory: Path, project: Project, found: object) -> bool:
    """Return whether a signature is ours; arguments are those of :func:`signature`."""
    key = _key(project, make=False)
    if not key or not isinstance(found, str):
        return False
    ours = _keyed_hash(kind, values, directory, key)
    return hmac.compare_digest(found.encode(errors="replace"), ours.encode())


def _keyed_hash(kind: str, values: Iterable[Any], directory: Path, key: bytes) -> str:
    if not key:
        return ""
    signed = json.dumps([kind, os.fspath(directory), *values], sort_keys=True).encode()
    return hashlib.blake2b(signed, key=key, digest_size=32).hexdigest()


def _key(project: Project, *, make: bool) -> bytes:
    """Return the user's key; empty if there is none.

    A key counts only if it is outside the project, and if no other user can read or write it.
    """
    path = privileges.state_home(project.environ) / "key"
    real = Path(os.path.realpath(path))  # Path.resolve() raises a RuntimeError at a loop of symlinks
    if real.is_relative_to(os.path.realpath(project.root)):
        return b""
    try:
        if make and not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                files.claim(path, os.urandom(_KEY_SIZE), mode=0o600)
        for private in (path.parent, path):
            found = private.lstat()
            is_private = private == path.parent or not found.st_mode & _ACCESSIBLE_TO_OTHERS
            if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid() or not is_private:
                return b""
        key = files.read(path, _KEY_SIZE)
    except OSError:
        return b""
    return key if len(key) == _KEY_SIZE else b""
