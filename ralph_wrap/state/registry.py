"""Agent records on disk: the sessions that are not finished, and their ids.

All other code relies on this order: a session takes its lock before its record appears, and frees the lock
after the record has gone. So if the lock of a record is free, its owner is dead.

A record that cannot be read, or comes from a newer version, is reported as such and never touched.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralph_wrap.errors import NoIdLeftError, RalphError
from ralph_wrap.state import ids
from ralph_wrap.state.record import VERSION, SessionRecord, UnreadableRecord, read
from ralph_wrap.system import files
from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ralph_wrap.system.liveness import ProcessIdentity

AGENT_LOCK = "agent.lock"
"""Name of a lock in the directory of a session; its agents inherit it."""

_IDS = 1 << 16
_LOOKS = 10
_PAUSE = 0.01  # seconds between attempts
_NAMESPACE = re.compile(r"pid:\[([0-9]{1,20})\]")  # namespaces(7)


class Registry(NamedTuple):
    """The records of one project.

    Attributes:
        directory: ``.ralph/run``, or the directory that replaces it.

    """

    directory: Path

    @property
    def agents(self) -> Path:
        """Directory of the records of sessions that are not finished."""
        return self.directory / "agents"

    @property
    def sessions(self) -> Path:
        """Directory with one directory for each session; it stays after the session's end."""
        return self.directory / "sessions"

    @property
    def trash(self) -> Path:
        """Directory to which worktrees are moved before they are deleted."""
        return self.directory / "trash"

    @property
    def containers(self) -> Path:
        """Directory with one lock for each container; ``ralph-wrap init`` holds it while it runs."""
        return self.directory / "containers"

    def prepare(self) -> None:
        """Create the directories.

        Raises:
            OSError: the directories cannot be created or written to.

        """
        for directory in (self.directory, self.agents, self.sessions, self.trash, self.containers):
            directory.mkdir(parents=True, exist_ok=True)
            if directory.is_symlink():  # through it we could write to and delete any directory
                raise OSError(errno.ELOOP, "it is a symlink", str(directory))
            if not os.access(directory, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "not writable", str(directory))
        files.fill(self.directory / ".gitignore", b"*\n")

    def claim(
        self,
        identity: ProcessIdentity,
        taken: Callable[..., Collection[str]],
        now: datetime,
        complete: Callable[[SessionRecord], SessionRecord],
    ) -> SessionClaim:
        """Register a session under a free id.

        Arguments:
            identity: this process.
            taken: returns the ids that belong to a branch; for an id, returns this id if it belongs to one.
            now: the time for the session id.
            complete: adds the data to a record that it must have from the beginning.

        Raises:
            NoIdLeftError: no id is free.
            OSError: the registry cannot be written.

        """
        had = {path.name.partition(".")[0] for path in self.agents.iterdir()}
        first, step = (int.from_bytes(os.urandom(2)) for _ in range(2))
        for turn in range(_IDS):
            name = f"{(first + turn * (step | 1)) % _IDS:04x}"  # an odd step reaches each id once
            if name in had:
                continue
            if claim := self._try(name, identity, now, complete):
                # Check after the claim: a whole session could start and end between check and claim.
                if name not in taken(name):
                    return claim
                claim.withdraw()
                had.update(taken())  # seldom needed: the first id is usually free
        raise NoIdLeftError(
            "no agent id is left: every one of 65,536 belongs to a live agent or a branch ralph/*",
            "delete branches that are merged: git branch --list 'ralph/*' --merged",
        )

    def _try(
        self,
        agent_id: str,
        identity: ProcessIdentity,
        now: datetime,
        complete: Callable[[SessionRecord], SessionRecord],
    ) -> SessionClaim | None:
        path = self.agents / f"{agent_id}.json"
        lock = files.try_lock(path.with_suffix(".lock"))
        if lock is None:
            return None
        session = ids.session_id(agent_id, now)
        record = complete(
            SessionRecord(id=agent_id, session=session, **identity._asdict(), lock_inode=lock.inode)
        )
        directory = self.sessions / session
        try:
            directory.mkdir()
            try:
                files.claim(path, record.to_json())
            except OSError:
                directory.rmdir()  # without a record, no process would know its session
                raise
        except FileExistsError:
            lock.release(unlink=not path.exists())
            return None
        except OSError:
            lock.release(unlink=True)
            raise
        return SessionClaim(self, record, lock)

    def take_over(self, record: SessionRecord) -> SessionClaim | None:
        """Replace a dead owner; ``None`` if another process has replaced it, or finished its session, by now.

        Raises:
            OSError: the lock cannot be checked, or the session's directory cannot be created.

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
        claim = SessionClaim(self, record, lock)
        if not claim.directory.is_dir() or claim.directory.is_symlink():
            claim.leave()
            raise OSError(errno.ENOTDIR, "the session's directory was replaced", str(claim.directory))
        return claim

    def tidy(self) -> None:
        """Remove the locks of ended containers, and of sessions that were killed before they had a record.

        Raises:
            OSError: the directories cannot be read. If one lock cannot be removed, the others still are.

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
        """Tell whether there is a record whose lock is free; this check is fast enough for each ``run``."""
        try:
            return not all(map(_is_owned, self._locks()))
        except OSError:
            return False

    def has_container(self, record: SessionRecord) -> bool:
        """Tell whether the container of a session still runs, that is, its PID 1 holds a lock.

        Raises:
            OSError: the lock cannot be checked.

        """
        number = _NAMESPACE.fullmatch(record.pid_namespace)
        return number is not None and files.is_locked(self.containers / f"{number[1]}.lock")

    def _locks(self) -> list[Path]:
        # Only names of our form: a sweep removes these files, and builds names of directories from them.
        return [path for path in self.agents.glob("*.lock") if ids.is_agent_id(path.stem)]

    def unfinished(self) -> list[SessionRecord | UnreadableRecord]:
        """Return the record of every session that is not finished."""
        try:
            paths = sorted(self.agents.glob("*.json"))
        except OSError:
            return []
        return [read(path) for path in paths]

    def finished(self) -> list[SessionRecord | UnreadableRecord]:
        """Return the record of every session that is finished."""
        return [read(path) for path in self.finished_paths()]

    def finished_paths(self, sessions: str = "*") -> list[Path]:
        """Return the paths of the records of finished sessions whose ids match a pattern (``fnmatch``)."""
        try:
            return sorted(self.sessions.glob(f"{sessions}/record.json"))
        except OSError:
            return []

    def is_locked(self, agent_id: str) -> bool:
        """Tell whether the owner of an id holds its lock.

        Raises:
            OSError: the lock cannot be checked. Our code removes a lock only after its record. If a record
                has no lock, a user removed the lock (``find -name '*.lock' -delete``). This does not prove
                that the owner is dead.

        """
        path = self._lock_of(agent_id)
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return files.is_locked(path)

    def lock_inode(self, agent_id: str) -> int:
        """Return the inode number of an id's lock.

        Raises:
            OSError: there is no lock.

        """
        return self._lock_of(agent_id).lstat().st_ino

    def _lock_of(self, agent_id: str) -> Path:
        return self.agents / f"{agent_id}.lock"

    def has(self, agent_id: str) -> bool:
        """Tell whether there is a record of a session that is not finished."""
        return os.path.lexists(self.agents / f"{agent_id}.json")


def _lock_patiently(path: Path) -> files.FileLock | None:
    """Take a lock, and try again for a moment: another process may hold it only to check it."""
    for _ in range(_LOOKS):
        if lock := files.try_lock(path):
            return lock
        time.sleep(_PAUSE)
    return None


def _is_owned(lock: Path) -> bool:
    try:
        return files.is_locked(lock)
    except OSError:
        return True  # unknown counts as owned; a sweep could not check it either


class SessionClaim:
    """An id that is ours until it is released."""

    def __init__(self, registry: Registry, record: SessionRecord, lock: files.FileLock) -> None:
        self.registry = registry
        self._lock = lock
        self._path = registry.agents / f"{record.id}.json"
        self.record = record
        self.directory = registry.sessions / record.session

    def update(self, **changes: Any) -> None:
        """Write changed fields durably: a sweep after a power failure relies on them.

        Raises:
            OSError: the record cannot be written; the old record stays.

        """
        changed = self.record._replace(**changes)
        files.replace(self._path, changed.to_json())
        self.record = changed

    def lock_for_agents(self) -> files.FileLock:
        """Take the lock that an agent and its child processes inherit; it is held while one of them runs.

        Raises:
            RalphError: the lock is not available. Without it, a sweep on another side could treat the agent
                as dead.

        """
        try:
            lock = files.try_lock(self.directory / AGENT_LOCK)
        except OSError as error:
            raise RalphError(
                f"the agent's lock cannot be created: {error.strerror}", "is the disk full?"
            ) from error
        if lock is None:
            raise RalphError(f"another process holds {self.directory / AGENT_LOCK}")
        return lock

    def has_agents(self) -> bool:
        """Tell whether a process that inherited the agents' lock runs, also in another pid namespace.

        Raises:
            OSError: the lock cannot be checked.

        """
        return files.is_locked(self.directory / AGENT_LOCK)

    def withdraw(self) -> None:
        """Free the id, and remove its record and directory."""
        self._path.unlink()
        self.directory.rmdir()
        self._lock.release(unlink=True)

    def leave(self) -> None:
        """Free the lock and keep the record: a later sweep finishes the session."""
        self._lock.release()

    def release(self) -> None:
        """Move the record to the session's directory, as finished, and free the id.

        Raises:
            OSError: the record could not be moved; the id is free all the same.

        """
        try:
            for leftover in files.temporaries(self._path):  # left by an owner that was killed
                leftover.unlink(missing_ok=True)
            self.update(state="finished")
            self._path.rename(self.directory / "record.json")
        finally:
            self._lock.release(unlink=not self._path.exists())


__all__ = ["AGENT_LOCK", "VERSION", "Registry", "SessionClaim", "SessionRecord", "UnreadableRecord", "read"]
