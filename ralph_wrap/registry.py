"""Agent records on disk: who is here, under which id.

Order that everything else relies on: the lock is taken before the record appears and freed after it has
gone. So a record whose lock is free has a dead owner, never one that is about to take it.

A record that cannot be read, or comes from a newer version, is reported as such and never touched.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import random
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralph_wrap import files
from ralph_wrap.errors import NoIdLeftError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ralph_wrap.liveness import Identity

VERSION = 1
"""Of the records; a higher one was written by a newer ralph-wrap."""

_IDS = 1 << 16
_ID = re.compile(r"[0-9a-f]{4}")
_SESSION = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}")


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of one session while it lives; paths are absolute.

    Attributes:
        state: ``starting``, ``running``, ``ending`` or ``finished``.
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
    extra: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return the record as it stands on disk."""
        known = dataclasses.asdict(self)
        extra = known.pop("extra")
        return json.dumps({**extra, "version": VERSION, **known}, indent=1).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that cannot be understood.

    Attributes:
        id: the name of its file.
        reason: why.

    """

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Registry:
    """The records of one project.

    Attributes:
        directory: ``.ralph/run``, or where it stands in for that.

    """

    directory: Path

    @property
    def agents(self) -> Path:
        """Where the records of sessions that live are."""
        return self.directory / "agents"

    @property
    def sessions(self) -> Path:
        """Where each session has a directory of its own, which outlives it."""
        return self.directory / "sessions"

    @property
    def trash(self) -> Path:
        """Where worktrees go on their way out."""
        return self.directory / "trash"

    def prepare(self) -> None:
        """Make the directories.

        Raises:
            OSError: they cannot be made or written to.

        """
        for directory in (self.directory, self.agents, self.sessions, self.trash):
            directory.mkdir(parents=True, exist_ok=True)
            if directory.is_symlink():  # it could lead us to write and delete anywhere
                raise OSError(errno.ELOOP, "it is a symlink", str(directory))
            if not os.access(directory, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "not writable", str(directory))
        own_rule = self.directory / ".gitignore"
        if not own_rule.exists():
            files.replace(own_rule, b"*\n", sync=False)

    def claim(
        self, identity: Identity, taken: Callable[..., Collection[str]], now: datetime, agent: str
    ) -> Claim:
        """Register a session under an id that nobody has.

        Arguments:
            identity: this process.
            taken: returns the ids that belong to a branch; given an id, that one if it does.
            now: names the session.
            agent: what it runs, for people.

        Raises:
            NoIdLeftError: there is none.
            OSError: the registry cannot be written.

        """
        had = {path.name.partition(".")[0] for path in self.agents.iterdir()}.union(taken())
        first, step = random.randrange(_IDS), random.randrange(1, _IDS, 2)  # noqa: S311 -- spread, not secret
        for turn in range(_IDS):  # an odd step meets each of them once
            name = f"{(first + turn * step) % _IDS:04x}"
            if name in had:
                continue
            if claim := self._try(name, identity, now, agent):
                # Between the look and the claim a whole session of that id may have come and gone.
                if name not in taken(name):
                    return claim
                claim.withdraw()
        raise NoIdLeftError(
            "no agent id is left: every one of 65,536 belongs to a live agent or a branch ralph/*",
            "delete branches that are merged: git branch --list 'ralph/*' --merged",
        )

    def _try(self, agent_id: str, identity: Identity, now: datetime, agent: str) -> Claim | None:
        path = self.agents / f"{agent_id}.json"
        lock = files.try_lock(path.with_suffix(".lock"))
        if lock is None:
            return None
        session = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{agent_id}"
        record = Record(id=agent_id, session=session, **dataclasses.asdict(identity), agent=agent)
        try:
            (self.sessions / session).mkdir()
            files.claim(path, record.to_json())
        except FileExistsError:
            lock.release(unlink=not path.exists())
            return None
        except OSError:
            lock.release(unlink=True)
            raise
        return Claim(self, record, lock)

    def unfinished(self) -> list[Record | Unreadable]:
        """Return the record of every session that is not finished."""
        try:
            paths = sorted(self.agents.glob("*.json"))
        except OSError:
            return []
        return [read(path) for path in paths]

    def finished(self) -> list[Record | Unreadable]:
        """Return the record of every session that is finished."""
        try:
            paths = sorted(self.sessions.glob("*/record.json"))
        except OSError:
            return []
        return [read(path) for path in paths]

    def is_locked(self, agent_id: str) -> bool:
        """Tell whether the owner of an id holds its lock.

        Raises:
            OSError: that cannot be told. A lock is removed only after its record, so a record without one
                is somebody else's doing (``find -name '*.lock' -delete``) and proves no owner dead.

        """
        path = self.agents / f"{agent_id}.lock"
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return files.is_locked(path)

    def has(self, agent_id: str) -> bool:
        """Tell whether there is a record of a session that is not finished."""
        return os.path.lexists(self.agents / f"{agent_id}.json")


class Claim:
    """An id that is ours until it is released."""

    def __init__(self, registry: Registry, record: Record, lock: files.Lock) -> None:
        self.registry = registry
        self._lock = lock
        self._path = registry.agents / f"{record.id}.json"
        self.record = record
        self.directory = registry.sessions / record.session

    def update(self, **changes: Any) -> None:
        """Write changed fields.

        Raises:
            OSError: the old record stands.

        """
        self.record = dataclasses.replace(self.record, **changes)
        files.replace(self._path, self.record.to_json(), sync=False)

    def withdraw(self) -> None:
        """Give the id back as if it had never been claimed."""
        self._path.unlink()
        self.directory.rmdir()
        self._lock.release(unlink=True)

    def release(self) -> None:
        """Move the record to the session's directory, as finished, and free the id.

        Raises:
            OSError: the record could not be moved; the id is free all the same.

        """
        try:
            self.update(state="finished")
            self._path.rename(self.directory / "record.json")
        finally:
            self._lock.release(unlink=not self._path.exists())


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
    known = {entry.name: entry for entry in dataclasses.fields(Record) if entry.name != "extra"}
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
        *((number, int) for number in (record.pid, record.iteration)),
        (record.start_time, (int, float)),
    ]
    if not all(isinstance(value, kind) for value, kind in shapes):
        raise TypeError("a field of the wrong type")
    if any(b"\0" in os.fsencode(value) for value, _ in shapes if isinstance(value, str)):
        raise ValueError("a field that no file or process could be named by")
    if not _ID.fullmatch(record.id) or not _SESSION.fullmatch(record.session):
        raise ValueError("an id of the wrong form")
    # Its lock is looked for under the id: that of another record would tell nothing about this one.
    if record.id != name or not record.session.endswith(f"-{name}"):
        raise ValueError("an id that is not its own")
    started(record.session)  # raises ValueError for a day or an hour that does not exist
    return record


def started(session: str) -> datetime:
    """Return when a session began, which its id tells."""
    return datetime.strptime(session[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
