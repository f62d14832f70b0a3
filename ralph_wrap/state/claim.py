"""Claim a free agent id for a new session, or take over the session of a dead owner.

The order of the steps is that of :mod:`ralph_wrap.state.registry`: the lock comes first and goes last.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from ralph_wrap.errors import ConflictError, NoIdLeftError, RalphError
from ralph_wrap.state import ids
from ralph_wrap.state.record import SessionRecord, read_record
from ralph_wrap.state.registry import Registry
from ralph_wrap.system import files
from ralph_wrap.system.files import lock_holder
from ralph_wrap.system.files.lock_holder import HeldLock
from ralph_wrap.system.liveness import ProcessIdentity

_AGENT_LOCK = "agent.lock"  # in the directory of a session; its agents inherit it
_SECOND_NAME = "ralph-wrap-agent.lock"  # of the same file, in the git directory of a worktree
_IDS = 1 << 16
_LOOKS = 10
_PAUSE = 0.01  # seconds between attempts


class SessionClaim:
    """An id that is ours until it is released."""

    def __init__(self, registry: Registry, record: SessionRecord, lock: files.FileLock) -> None:
        self.registry = registry
        self._lock = lock
        self._agents: files.FileLock | None = None
        self._path = registry.record_path(record.id)
        self.record = record
        self.directory = registry.sessions / record.session

    def update(self, **changes: Any) -> None:
        """Write changed fields durably: a sweep after a power failure relies on them.

        A full disk has no room for a new file. Then the new fields go to the place of the old ones: a session
        that could not say how it ended would count as crashed.

        Raises:
            OSError: the record cannot be written.
                ESTALE: our lock is not in its place, so the record there may be another session's.

        """
        self._require_lock()
        changed = self.record._replace(**changes)
        try:
            files.replace(self._path, changed.to_json())
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            files.overwrite(self._path, self.record.to_json(), changed.to_json())
        self.record = changed

    def _require_lock(self) -> None:
        """Check that the id is still ours: once our lock is deleted, another process may claim it."""
        if not self._lock.is_in_place:
            raise OSError(errno.ESTALE, "the lock of the session was deleted or replaced", str(self._path))

    @property
    def is_whole(self) -> bool:
        """Whether the record, the lock that we hold and the directory are in their places."""
        try:
            return self._lock.is_in_place and os.path.lexists(self._path) and self.directory.is_dir()
        except OSError:
            return False

    def write_anew(self) -> None:
        """Make record, locks and directory anew where they were deleted.

        The record comes last, because a sweep looks for our agent in the place of the agents' lock.

        Raises:
            OSError: one of them cannot be made, or another process has our id now.

        """
        self.registry.prepare()
        found = read_record(self._path)
        if isinstance(found, SessionRecord) and found.session != self.record.session:  # perhaps a dead one's
            raise OSError(errno.EEXIST, "another session has its id now", str(self._path))
        self._lock.take_again()
        self.directory.mkdir(exist_ok=True)
        if self.directory.is_symlink():
            raise OSError(errno.ELOOP, "a symlink is not followed", os.fspath(self.directory))
        unseen = self._agents is not None and not self._agents.take_again()
        self.record = self.record._replace(
            lock_inode=self._lock.inode, agents_unseen=self.record.agents_unseen or unseen
        )
        files.replace(self._path, self.record.to_json())

    def lock_for_agents(self, git_dir: Path | None = None) -> files.FileLock:
        """Take the lock that an agent and its child processes inherit; it is held while one of them runs.

        Arguments:
            git_dir: of the worktree alone. There the lock's file gets a second name, which goes with the
                worktree: ``git clean -fdx`` in the project deletes the first one.

        Raises:
            RalphError: the lock is not available. Without it, a sweep on another side could treat the agent
                as dead.

        """
        try:
            lock = files.try_lock(self.directory / _AGENT_LOCK)
        except OSError as error:
            raise RalphError(
                f"the agent's lock cannot be created: {error.strerror}", "is the disk full?"
            ) from error
        if lock is None:
            held = self.agents()
            raise RalphError(held.sentence, held.hint)
        if git_dir is not None:
            lock.add_name(git_dir / _SECOND_NAME)
        self._agents = lock
        return lock

    def agents(self) -> HeldLock:
        """Return the processes that inherited the agents' lock, as far as we see them."""
        return lock_holder.held_lock(self.directory / _AGENT_LOCK)

    def has_agents(self) -> bool:
        """Return whether a process that inherited the agents' lock runs, also in another pid namespace.

        Raises:
            OSError: the lock cannot be checked.

        """
        return files.is_locked(self.directory / _AGENT_LOCK)

    def withdraw(self) -> None:
        """Free the id, and remove its record and directory, if they are still ours."""
        if not self._lock.is_in_place:
            self._lock.release()
            return
        self._path.unlink()
        self.directory.rmdir()
        self._lock.release(unlink=True)

    def leave(self) -> None:
        """Free the lock and keep the record: a later sweep finishes the session."""
        self._lock.release()

    def release(self, **changes: Any) -> None:
        """Move the record to the session's directory, as finished, and free the id.

        Arguments:
            changes: fields of the record to change.

        Raises:
            OSError: the record could not be moved; the id is free even then.
                ESTALE: our lock is not in its place. Record and lock there are left as they are.

        """
        try:
            self._require_lock()
            for leftover in files.temporaries(self._path):  # left by an owner that was killed
                leftover.unlink(missing_ok=True)
            self.update(state="finished", **changes)
            self._path.rename(self.directory / "record.json")
        finally:
            self._lock.release(unlink=self._lock.is_in_place and not self._path.exists())


def claim_id(
    registry: Registry,
    identity: ProcessIdentity,
    taken: Callable[..., Collection[str]],
    now: float,
    complete: Callable[[SessionRecord], SessionRecord],
) -> SessionClaim:
    """Register a session under a free id.

    Arguments:
        identity: this process.
        taken: returns the ids that belong to a branch; for an id, returns this id if it belongs to one.
        now: the time for the session id, in seconds since the epoch.
        complete: adds the data to a record that it must have from the beginning.

    Raises:
        NoIdLeftError: no id is free.
        OSError: the registry cannot be written.

    """
    used = {path.name.partition(".")[0] for path in registry.agents.iterdir()}
    first, step = (int.from_bytes(os.urandom(2)) for _ in range(2))
    for turn in range(_IDS):
        name = f"{(first + turn * (step | 1)) % _IDS:04x}"  # an odd step reaches each id once
        if name in used:
            continue
        if claim := _try(registry, name, identity, now, complete):
            # Check after the claim: a whole session could start and end between check and claim.
            if name not in taken(name):
                return claim
            claim.withdraw()
            used.update(taken())  # seldom needed: the first id is usually free
    raise NoIdLeftError(
        "no agent id is left: every one of 65,536 belongs to a live agent or a branch ralph/*",
        "delete branches that are merged: git branch --list 'ralph/*' --merged",
    )


def claim_again(
    registry: Registry,
    agent_id: str,
    identity: ProcessIdentity,
    now: float,
    complete: Callable[[SessionRecord], SessionRecord],
) -> SessionClaim:
    """Register a session under the agent id of an earlier one; arguments as for :func:`claim_id`.

    Raises:
        ConflictError: a session with this id runs.
        OSError: the registry cannot be written.

    """
    for seconds in range(_LOOKS):  # the directory of a session that began in this second has the same name
        if registry.has(agent_id):
            break
        if claim := _try(registry, agent_id, identity, now + seconds, complete):
            return claim
        time.sleep(_PAUSE)
    raise ConflictError(f"another session has the agent id {agent_id}", "to list sessions: ralph-wrap ps")


def _try(
    registry: Registry,
    agent_id: str,
    identity: ProcessIdentity,
    now: float,
    complete: Callable[[SessionRecord], SessionRecord],
) -> SessionClaim | None:
    path = registry.record_path(agent_id)
    lock = files.try_lock(registry.lock_path(agent_id))
    if lock is None:
        return None
    session = ids.session_id(agent_id, now)
    record = complete(
        SessionRecord(id=agent_id, session=session, **identity._asdict(), lock_inode=lock.inode)
    )
    directory = registry.sessions / session
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
    return SessionClaim(registry, record, lock)


def take_over(registry: Registry, record: SessionRecord) -> SessionClaim | None:
    """Replace a dead owner; ``None`` if another process has replaced it, or finished its session.

    Raises:
        OSError: the lock cannot be checked, or the session's directory cannot be created.

    """
    path, lock_path = registry.record_path(record.id), registry.lock_path(record.id)
    if not lock_path.is_file():
        return None
    lock = _lock_patiently(lock_path)
    if lock is None:
        return None
    if read_record(path) != record:
        lock.release(unlink=not os.path.lexists(path))
        return None
    claim = SessionClaim(registry, record, lock)
    if not claim.directory.is_dir() or claim.directory.is_symlink():
        claim.leave()
        raise OSError(errno.ENOTDIR, "the session's directory was replaced", str(claim.directory))
    return claim


def register_anew(registry: Registry, record: SessionRecord, git_dir: Path) -> None:
    """Register a session whose files were deleted, as one without an owner: a sweep can finish it.

    Arguments:
        record: what is still known of it.
        git_dir: of its worktree alone. The agents' lock gets its name in the session's directory back from
            there (see :meth:`SessionClaim.lock_for_agents`): it shows an agent that runs, wherever that is.

    Raises:
        ConflictError: another session has its id, or a process holds the id.
        OSError: the registry cannot be written.

    """
    registry.prepare()
    path, directory = registry.record_path(record.id), registry.sessions / record.session
    lock = files.try_lock(registry.lock_path(record.id))
    if lock is None:
        held = lock_holder.held_lock(registry.lock_path(record.id))
        raise ConflictError(f"session {record.session} may be alive: {held.sentence}", held.hint)
    try:
        directory.mkdir(exist_ok=True)
        if directory.is_symlink():
            raise OSError(errno.ELOOP, "a symlink is not followed", os.fspath(directory))
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            (directory / _AGENT_LOCK).hardlink_to(git_dir / _SECOND_NAME)
        files.claim(path, record._replace(lock_inode=lock.inode).to_json())
    except FileExistsError as error:
        raise ConflictError(
            f"another session has the agent id {record.id}", "to list sessions: ralph-wrap ps"
        ) from error
    finally:
        lock.release(unlink=not os.path.lexists(path))


def _lock_patiently(path: Path) -> files.FileLock | None:
    """Take a lock, and try again for a moment: another process may hold it only to check it."""
    for _ in range(_LOOKS):
        if lock := files.try_lock(path):
            return lock
        time.sleep(_PAUSE)
    return None
