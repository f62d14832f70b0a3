"""One record: what stands in it, and what is made of a file that somebody else may have written."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ralph_wrap.system import files
from ralph_wrap.system.liveness import Identity

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
"""Of the records; a higher one was written by a newer ralph-wrap."""

_ID = re.compile(r"[0-9a-f]{4}")
_SESSION = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}")


class Record(NamedTuple):
    """What is known of one session while it lives; paths are absolute.

    Attributes:
        branch: what it works on, or will; ``None`` if it works in the plain project root.
        base: the commit that the branch starts from.
        workspace: where it works, or will.
        state: ``starting`` (its worktree is not made yet), ``running``, ``ending`` or ``finished``.
        keep_worktree: whoever ends it leaves the worktree.
        on_dirty: the same if the worktree is dirty: ``wip`` or ``keep``.
        drop_empty: whoever ends it deletes a branch that nothing came of.
        background: whoever ends it saves, but leaves the worktree to ``ralph-wrap rm``.
        marked: the registration of its worktree bears a mark. Earlier versions wrote none.
        lock_inode: of its lock's file, 0 if that is not known. In a copy of the project it is another one.
        file_mode: the repository's file system knows executable files.
        symlinks: the same of symlinks.
        extra: keys that this version does not know, kept as they are.

    """

    id: str
    session: str
    pid: int
    start_time: float
    boot_id: str
    pid_namespace: str
    host: str
    branch: str | None = None
    base: str | None = None
    workspace: str | None = None
    agent: str = ""
    iteration: int = 0
    state: str = "starting"
    keep_worktree: bool = False
    on_dirty: str = "wip"
    drop_empty: bool = False
    background: bool = False
    marked: bool = False
    lock_inode: int = 0
    file_mode: bool = True
    symlinks: bool = True
    extra: Mapping[str, Any] = MappingProxyType({})

    @property
    def owner(self) -> Identity:
        """The process whose session it is."""
        return Identity(self.pid, self.start_time, self.boot_id, self.pid_namespace, self.host)

    def to_json(self) -> bytes:
        """Return the record as it stands on disk."""
        known = self._asdict()
        extra = known.pop("extra")
        return json.dumps({**extra, "version": VERSION, **known}, indent=1).encode() + b"\n"


class Unreadable(NamedTuple):
    """A record that cannot be understood.

    Attributes:
        id: the name of its file.
        reason: why.

    """

    id: str
    reason: str


def read(path: Path) -> Record | Unreadable:
    """Read one record, whatever somebody made of the file."""
    name = path.stem if path.name != "record.json" else path.parent.name.rpartition("-")[2]
    try:
        return _checked(json.loads(files.read(path)), name)
    except OSError as error:
        return Unreadable(name, error.strerror or str(error))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return Unreadable(name, f"not a record of this version: {error}")


def _checked(loaded: Any, name: str) -> Record:
    if not isinstance(loaded, dict):
        raise TypeError("no JSON object")
    known = [name for name in Record._fields if name != "extra"]
    version = loaded.pop("version")
    if version != VERSION:
        raise ValueError(f"version {version}")
    record = Record(
        **{name: loaded.pop(name) for name in known if name in loaded},
        extra=loaded,
    )
    optional = (str, type(None))
    shapes: list[tuple[Any, type | tuple[type, ...]]] = [
        *((text, str) for text in (record.id, record.session, record.boot_id, record.pid_namespace)),
        *((text, str) for text in (record.host, record.agent, record.state)),
        *((text, optional) for text in (record.branch, record.base, record.workspace)),
        *((number, int) for number in (record.pid, record.iteration, record.lock_inode)),
        *((flag, bool) for flag in (record.keep_worktree, record.drop_empty, record.background)),
        *((flag, bool) for flag in (record.marked, record.file_mode, record.symlinks)),
        (record.on_dirty, str),
        (record.start_time, (int, float)),
    ]
    if not all(isinstance(value, kind) for value, kind in shapes):
        raise TypeError("a field of the wrong type")
    if any(b"\0" in os.fsencode(value) for value, _ in shapes if isinstance(value, str)):
        raise ValueError("a field that no file or process could be named by")
    if not _ID.fullmatch(record.id) or not _SESSION.fullmatch(record.session):
        raise ValueError("an id of the wrong form")
    if record.on_dirty not in {"wip", "keep"}:
        raise ValueError("a word that is not known")
    # Its lock is looked for under the id: that of another record would tell nothing about this one.
    if record.id != name or not record.session.endswith(f"-{name}"):
        raise ValueError("an id that is not its own")
    started(record.session)  # raises ValueError for a day or an hour that does not exist
    return record


def started(session: str) -> datetime:
    """Return when a session began, which its id tells."""
    # Not by strptime(), which loads the locale: every start would wait for that.
    day, time = session[:8], session[9:15]
    year, month, date = map(int, (day[:4], day[4:6], day[6:]))
    hour, minute, second = map(int, (time[:2], time[2:4], time[4:]))
    return datetime(year, month, date, hour, minute, second, tzinfo=UTC)
