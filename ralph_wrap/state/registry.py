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
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.state import ids
from ralph_wrap.state.record import SessionRecord, UnreadableRecord, read_record
from ralph_wrap.system import files

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
    def replicas(self) -> Path:
        """Directory of the replicas of clones (see ``worktree.create.replica``), by session id."""
        return self.directory / "replicas"

    @property
    def bundles(self) -> Path:
        """Directory of the bundles with the work of clones, by session id."""
        return self.directory / "bundles"

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

    def tidy(self) -> None:
        """Remove the locks of ended containers, and of sessions that were killed before they had a record.

        Raises:
            OSError: the directories cannot be read. If one lock cannot be removed, the others still are.

        """
        for path in self.replicas.glob("*.gone"):  # the removal of a replica was interrupted
            files.remove_tree(path)
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
        """Return whether there is a record whose lock is free. Each ``run`` asks this first."""
        try:
            return not all(map(_is_owned, self._locks()))
        except OSError:
            return False

    def has_container(self, record: SessionRecord) -> bool:
        """Return whether the container of a session still runs, that is, its PID 1 holds a lock.

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
        return _not_gone(map(read_record, paths))

    def finished(self) -> list[SessionRecord | UnreadableRecord]:
        """Return the record of every session that is finished."""
        return _not_gone(map(read_record, self.finished_paths()))

    def with_worktrees(
        self, worktrees: Path, taken: Collection[str]
    ) -> list[SessionRecord | UnreadableRecord]:
        """Return the record of every finished session whose worktree still exists.

        Arguments:
            worktrees: the directory of the project's worktrees.
            taken: the names of worktrees in which other sessions work now.

        """
        try:
            names = sorted(
                path.name for path in worktrees.iterdir() if path.name not in taken and path.is_dir()
            )
        except OSError:
            return []
        found = []
        for name in filter(ids.is_session_id, names):
            # A session that goes on from another one has the directory of its predecessor.
            records = map(read_record, self.finished_paths(f"*-{ids.agent_id_of(name)}"))
            found += [record for record in records if _has_worktree(record, name)][-1:]
        return found

    def finished_paths(self, sessions: str = "*") -> list[Path]:
        """Return the paths of the records of finished sessions whose ids match a pattern (``fnmatch``)."""
        try:
            return sorted(self.sessions.glob(f"{sessions}/record.json"))
        except OSError:
            return []

    def is_locked(self, agent_id: str) -> bool:
        """Return whether the owner of an id holds its lock.

        Raises:
            OSError: the lock cannot be checked. Our code removes a lock only after its record. If a record
                has no lock, a user removed the lock (``find -name '*.lock' -delete``). This does not prove
                that the owner is dead.

        """
        path = self.lock_path(agent_id)
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return files.is_locked(path)

    def lock_inode(self, agent_id: str) -> int:
        """Return the inode number of an id's lock.

        Raises:
            OSError: there is no lock.

        """
        return self.lock_path(agent_id).lstat().st_ino

    def record_path(self, agent_id: str) -> Path:
        """Return the path of the record of a session that is not finished."""
        return self.agents / f"{agent_id}.json"

    def lock_path(self, agent_id: str) -> Path:
        """Return the path of the lock of an id."""
        return self.agents / f"{agent_id}.lock"

    def has(self, agent_id: str) -> bool:
        """Return whether there is a record of a session that is not finished."""
        return os.path.lexists(self.record_path(agent_id))


def _not_gone(
    records: Iterable[SessionRecord | UnreadableRecord],
) -> list[SessionRecord | UnreadableRecord]:
    """Leave out records that have gone since their directory was read: another process has finished them."""
    return [record for record in records if isinstance(record, SessionRecord) or not record.is_gone]


def _has_worktree(record: SessionRecord | UnreadableRecord, name: str) -> bool:
    return isinstance(record, UnreadableRecord) or record.worktree_name == name


def _is_owned(lock: Path) -> bool:
    try:
        return files.is_locked(lock)
    except OSError:
        return True  # unknown counts as owned; a sweep could not check it either


__all__ = ["Registry", "SessionRecord", "UnreadableRecord"]
