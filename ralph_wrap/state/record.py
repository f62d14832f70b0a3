"""One record: its fields, and the checks of a file that an agent may have written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ralph_wrap.state import ids
from ralph_wrap.system.document import DocumentFormat, convert_fields
from ralph_wrap.system.liveness import ProcessIdentity

FETCHED_FROM = "fetched_from"
"""The field of a record that names the remote from which ``ralph-wrap fetch`` has brought the session."""

FETCHED_REPORT, FETCHED_START = "fetched_report", "fetched_start"
"""Its fields with what the other files of a session here have; three files would take thrice the time."""

_FORMAT = DocumentFormat(version=1, indent=1)


class SessionRecord(NamedTuple):
    """The recorded data of one session; paths are absolute.

    Attributes:
        branch: the branch of its worktree; ``None`` if it works in the plain project root.
        base: the commit that the branch starts from.
        workspace: the worktree, or the plain project root.
        state: ``starting`` (it has no worktree yet), ``running``, ``ending`` or ``finished``.
        keep_worktree: the worktree stays at the end of the session.
        on_dirty: uncommitted work at the end: ``wip`` saves it and removes the worktree, ``keep`` keeps both.
        drop_empty: at the end, a branch without commits and saved work is deleted.
        background: at the end, the work is saved, and the worktree stays until ``ralph-wrap rm``.
        lock_inode: inode of its lock's file, 0 if unknown. In a copy of the project the inode differs.
        file_mode: the repository's file system supports executable files.
        symlinks: the repository's file system supports symlinks.
        resumes: id of the session that this one goes on from; ``None`` if it began anew.
        restored: commit of the saved work that was put back into its worktree.
        worktree: name of its worktree's directory, that of the session that it goes on from: most agents find
            a conversation only in the same directory. ``None`` if the name is its own session id.
        branch_created: the session created its branch: the branch did not exist before.
        worktree_inode: inode of its worktree's directory, 0 if unknown; in a copy of the project it differs.
        worktree_born: when that directory was made, in nanoseconds since the epoch, 0 if unknown.
        title: what people call the session; empty if it has no name and no prompt.
        task: token of the task that it does in a batch; empty if there is none.
        agents_unseen: the files of the session were deleted while its agent ran, and the agent holds the lock
            of a deleted file. So a free lock does not prove that the agent has ended.
        port: the first of the ports for servers of its agent, ``RALPH_PORT``; 0 before the agent has started.
        agent_now: the agent that works in place of *agent*, whose usage limit holds; empty for none.
        extra: keys that this version does not know; they are kept unchanged.

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
    lock_inode: int = 0
    file_mode: bool = True
    symlinks: bool = True
    resumes: str | None = None
    restored: str | None = None
    worktree: str | None = None
    branch_created: bool = False
    worktree_inode: int = 0
    worktree_born: int = 0
    title: str = ""
    task: str = ""
    agents_unseen: bool = False
    port: int = 0
    agent_now: str = ""
    extra: Mapping[str, Any] = MappingProxyType({})

    @property
    def owner(self) -> ProcessIdentity:
        """The process that runs the session."""
        return ProcessIdentity(self.pid, self.start_time, self.boot_id, self.pid_namespace, self.host)

    @property
    def worktree_name(self) -> str:
        """The name of its worktree's directory, if it has one."""
        return self.worktree or self.session

    def to_json(self) -> bytes:
        """Return the record in its format on disk."""
        known = self._asdict()
        extra = known.pop("extra")
        # With an indent, json encodes in Python, and a fetch brings a thousand records.
        written = _FORMAT._replace(indent=None) if FETCHED_FROM in extra else _FORMAT
        return written.encode(known, unknown=extra)


class UnreadableRecord(NamedTuple):
    """A record that this version cannot read.

    Attributes:
        id: the name of its file.
        reason: the error, for people.
        is_gone: there is no such file any more.

    """

    id: str
    reason: str
    is_gone: bool = False


def read_record(path: Path) -> SessionRecord | UnreadableRecord:
    """Read one record; any content of the file is handled."""
    name = path.stem if path.name != "record.json" else path.parent.name.rpartition("-")[2]
    try:
        return _FORMAT.read(path, lambda loaded: _checked(loaded, name))
    except OSError as error:
        is_gone = isinstance(error, FileNotFoundError)
        return UnreadableRecord(name, error.strerror or str(error), is_gone)
    except ValueError as error:
        return UnreadableRecord(name, f"not a record of this version: {error}")


def fetched_field(directory: Path, name: str) -> Any:
    """Return what the record of a session of another machine has in a field; ``None`` for one of ours.

    Arguments:
        directory: of the session.
        name: of the field.

    """
    record = read_record(directory / "record.json")
    is_foreign = isinstance(record, SessionRecord) and FETCHED_FROM in record.extra
    return record.extra.get(name) if is_foreign and isinstance(record, SessionRecord) else None


def is_fetched(directory: Path) -> bool:
    """Return whether a session of another machine was fetched, and never ran here.

    Arguments:
        directory: of the session.

    """
    return fetched_field(directory, FETCHED_FROM) is not None


def _checked(loaded: dict[str, Any], name: str) -> SessionRecord:
    own = {field: loaded.pop(field) for field in _OWN if field in loaded}
    record = convert_fields(own, SessionRecord)._replace(extra=loaded)
    if any(b"\0" in os.fsencode(value) for value in record if isinstance(value, str)):
        raise ValueError("a field that no file or process could be named by")
    if not ids.is_agent_id(record.id) or not ids.is_session_id(record.session):
        raise ValueError("an id of the wrong form")
    if record.on_dirty not in {"wip", "keep"}:
        raise ValueError("a word that is not known")
    if record.worktree is not None and not record.worktree.endswith(f"-{name}"):
        raise ValueError("a worktree that is not its own")
    if record.worktree is not None and not ids.is_session_id(record.worktree):
        raise ValueError("a worktree of the wrong form")
    # The lock is found by the id. The lock of another record proves nothing about this one.
    if record.id != name or not record.session.endswith(f"-{name}"):
        raise ValueError("an id that is not its own")
    ids.started(record.session)  # raises ValueError for a day or an hour that does not exist
    return record


_OWN = tuple(field for field in SessionRecord._fields if field != "extra")
