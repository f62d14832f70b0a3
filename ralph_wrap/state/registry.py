"""Agent records on disk: who is here, under which id.

Order that everything else relies on: the lock is taken before the record appears and freed after it has
gone. So a record whose lock is free has a dead owner, never one that is about to take it.

A record that cannot be read, or comes from a newer version, is reported as such and never touched.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ralph_wrap.errors import NoIdLeftError, RalphError
from ralph_wrap.state.record import VERSION, Record, Unreadable, read, started
from ralph_wrap.system import files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ralph_wrap.system.liveness import Identity

AGENT_LOCK = "agent.lock"
"""In the directory of a session."""

_IDS = 1 << 16
_LOOKS = 10
_PAUSE = 0.01  # seconds between them
_ID = re.compile(r"[0-9a-f]{4}")
_NAMESPACE = re.compile(r"pid:\[([0-9]{1,20})\]")  # namespaces(7)


class Registry(NamedTuple):
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

    @property
    def containers(self) -> Path:
        """Where each container's ``ralph-wrap init`` holds a lock as long as it lives."""
        return self.directory / "containers"

    def prepare(self) -> None:
        """Make the directories.

        Raises:
            OSError: they cannot be made or written to.

        """
        for directory in (self.directory, self.agents, self.sessions, self.trash, self.containers):
            directory.mkdir(parents=True, exist_ok=True)
            if directory.is_symlink():  # it could lead us to write and delete anywhere
                raise OSError(errno.ELOOP, "it is a symlink", str(directory))
            if not os.access(directory, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "not writable", str(directory))
        files.fill(self.directory / ".gitignore", b"*\n")

    def claim(
        self,
        identity: Identity,
        taken: Callable[..., Collection[str]],
        now: datetime,
        complete: Callable[[Record], Record],
    ) -> Claim:
        """Register a session under an id that nobody has.

        Arguments:
            identity: this process.
            taken: returns the ids that belong to a branch; given an id, that one if it does.
            now: names the session.
            complete: adds to a record what is to be known of the session from the beginning.

        Raises:
            NoIdLeftError: there is none.
            OSError: the registry cannot be written.

        """
        had = {path.name.partition(".")[0] for path in self.agents.iterdir()}
        first, step = (int.from_bytes(os.urandom(2)) for _ in range(2))
        for turn in range(_IDS):
            name = f"{(first + turn * (step | 1)) % _IDS:04x}"  # an odd step meets each of them once
            if name in had:
                continue
            if claim := self._try(name, identity, now, complete):
                # Only now: between a look before and the claim a whole session may have come and gone.
                if name not in taken(name):
                    return claim
                claim.withdraw()
                had.update(taken())  # the first one is seldom taken, so this is seldom needed
        raise NoIdLeftError(
            "no agent id is left: every one of 65,536 belongs to a live agent or a branch ralph/*",
            "delete branches that are merged: git branch --list 'ralph/*' --merged",
        )

    def _try(
        self, agent_id: str, identity: Identity, now: datetime, complete: Callable[[Record], Record]
    ) -> Claim | None:
        path = self.agents / f"{agent_id}.json"
        lock = files.try_lock(path.with_suffix(".lock"))
        if lock is None:
            return None
        session = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{agent_id}"
        record = complete(Record(id=agent_id, session=session, **identity._asdict(), lock_inode=lock.inode))
        directory = self.sessions / session
        try:
            directory.mkdir()
            try:
                files.claim(path, record.to_json())
            except OSError:
                directory.rmdir()  # nobody would know whose it was
                raise
        except FileExistsError:
            lock.release(unlink=not path.exists())
            return None
        except OSError:
            lock.release(unlink=True)
            raise
        return Claim(self, record, lock)

    def take_over(self, record: Record) -> Claim | None:
        """Take the place of a dead owner; ``None`` if somebody else has done that, or ended it, by now.

        Raises:
            OSError: that cannot be told, or its directory cannot be made.

        """
        path = self.agents / f"{record.id}.json"
        if not self._lock_of(record.id).is_file():
            return None
        lock = _lock_patiently(self._lock_of(record.id))
        if lock is None:
            return None
        if read(path) != record:
            lock.release(unlink=not os.path.lexists(path))
            return None
        claim = Claim(self, record, lock)
        if not claim.directory.is_dir() or claim.directory.is_symlink():
            claim.leave()
            raise OSError(errno.ENOTDIR, "the session's directory was replaced", str(claim.directory))
        return claim

    def tidy(self) -> None:
        """Remove the locks of containers that are gone, and of sessions that were killed without a record.

        Raises:
            OSError: the directories cannot be read; what else is in the way of one keeps no other.

        """
        for path in [*self.containers.glob("*.lock"), *self._locks()]:
            with contextlib.suppress(OSError):
                self._tidy(path)

    def _tidy(self, path: Path) -> None:
        of_session = path.parent == self.agents
        if (of_session and self.has(path.stem)) or (lock := files.try_lock(path)) is None:
            return
        try:
            if of_session and not self.has(path.stem):
                for leftover in files.temporaries(path.with_suffix(".json")):
                    leftover.unlink()
                for directory in self.sessions.glob(f"*-{path.stem}"):
                    with contextlib.suppress(OSError):  # it is not empty
                        directory.rmdir()
        finally:
            lock.release(unlink=not (of_session and self.has(path.stem)))

    def has_ownerless(self) -> bool:
        """Tell whether there is a record whose lock nobody holds: what a ``run`` can afford to ask."""
        try:
            return not all(map(_is_owned, self._locks()))
        except OSError:
            return False

    def has_container(self, record: Record) -> bool:
        """Tell whether the container that a session ran in is known to live: its PID 1 holds a lock.

        Raises:
            OSError: that cannot be told.

        """
        number = _NAMESPACE.fullmatch(record.pid_namespace)
        return number is not None and files.is_locked(self.containers / f"{number[1]}.lock")

    def _locks(self) -> list[Path]:
        # Only names that can be ours: a sweep removes what it finds, and looks for directories by the name.
        return [path for path in self.agents.glob("*.lock") if _ID.fullmatch(path.stem)]

    def unfinished(self) -> list[Record | Unreadable]:
        """Return the record of every session that is not finished."""
        try:
            paths = sorted(self.agents.glob("*.json"))
        except OSError:
            return []
        return [read(path) for path in paths]

    def finished(self) -> list[Record | Unreadable]:
        """Return the record of every session that is finished."""
        return [read(path) for path in self.finished_paths()]

    def finished_paths(self, sessions: str = "*") -> list[Path]:
        """Return where the records of finished sessions are whose ids fit a pattern (``fnmatch``)."""
        try:
            return sorted(self.sessions.glob(f"{sessions}/record.json"))
        except OSError:
            return []

    def is_locked(self, agent_id: str) -> bool:
        """Tell whether the owner of an id holds its lock.

        Raises:
            OSError: that cannot be told. A lock is removed only after its record, so a record without one
                is somebody else's doing (``find -name '*.lock' -delete``) and proves no owner dead.

        """
        path = self._lock_of(agent_id)
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return files.is_locked(path)

    def lock_inode(self, agent_id: str) -> int:
        """Return the inode number of an id's lock.

        Raises:
            OSError: there is none.

        """
        return self._lock_of(agent_id).lstat().st_ino

    def _lock_of(self, agent_id: str) -> Path:
        return self.agents / f"{agent_id}.lock"

    def has(self, agent_id: str) -> bool:
        """Tell whether there is a record of a session that is not finished."""
        return os.path.lexists(self.agents / f"{agent_id}.json")


def _lock_patiently(path: Path) -> files.Lock | None:
    """Take a lock that somebody may hold for a moment, only to see whether it is held."""
    for _ in range(_LOOKS):
        if lock := files.try_lock(path):
            return lock
        time.sleep(_PAUSE)
    return None


def _is_owned(lock: Path) -> bool:
    try:
        return files.is_locked(lock)
    except OSError:
        return True  # it cannot be told, and a sweep could not, either


class Claim:
    """An id that is ours until it is released."""

    def __init__(self, registry: Registry, record: Record, lock: files.Lock) -> None:
        self.registry = registry
        self._lock = lock
        self._path = registry.agents / f"{record.id}.json"
        self.record = record
        self.directory = registry.sessions / record.session

    def update(self, **changes: Any) -> None:
        """Write changed fields; a sweep after a power failure relies on them.

        Raises:
            OSError: the old record stands.

        """
        changed = self.record._replace(**changes)
        files.replace(self._path, changed.to_json())
        self.record = changed

    def lock_for_agents(self) -> files.Lock:
        """Take the lock that an agent, and whatever it starts, inherit: held as long as one of them lives.

        Raises:
            RalphError: it cannot be had; without it, a sweep elsewhere might take an agent for dead.

        """
        try:
            lock = files.try_lock(self.directory / AGENT_LOCK)
        except OSError as error:
            raise RalphError(
                f"the agent's lock cannot be made: {error.strerror}", "is the disk full?"
            ) from error
        if lock is None:
            raise RalphError(f"somebody else holds {self.directory / AGENT_LOCK}")
        return lock

    def has_agents(self) -> bool:
        """Tell whether a process that has inherited the agents' lock lives, seen from here or not.

        Raises:
            OSError: that cannot be told.

        """
        return files.is_locked(self.directory / AGENT_LOCK)

    def withdraw(self) -> None:
        """Give the id back as if it had never been claimed."""
        self._path.unlink()
        self.directory.rmdir()
        self._lock.release(unlink=True)

    def leave(self) -> None:
        """Let go of the id without an end: whoever takes the place finishes what is left."""
        self._lock.release()

    def release(self) -> None:
        """Move the record to the session's directory, as finished, and free the id.

        Raises:
            OSError: the record could not be moved; the id is free all the same.

        """
        try:
            for leftover in files.temporaries(self._path):  # of an owner that was killed
                leftover.unlink(missing_ok=True)
            self.update(state="finished")
            self._path.rename(self.directory / "record.json")
        finally:
            self._lock.release(unlink=not self._path.exists())


__all__ = ["AGENT_LOCK", "VERSION", "Claim", "Record", "Registry", "Unreadable", "read", "started"]
