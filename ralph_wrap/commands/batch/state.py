"""What a batch remembers of its tasks: ``state.json`` in a directory of its own for each task file.

**Why this order.** A batch can be killed at any point, and typed again. No task may be done twice or lost.

1. Before a session starts, the state holds a token for its task. The session has the token in its record from
   the first write on, before its agent starts.
2. The process of the session holds a lock that it has inherited. The next batch waits until no process holds
   it. So a task without a record that has its token was not begun, and cannot be begun later.
3. A task whose token a record has was begun: the batch goes on with the newest session that has it.
4. The report of the session says whether the task is done, also if the batch could not write it down.

An agent can write these files. So the state is signed as the start of a session is, and it holds no command.
The report has a signature of its end, with the token. Without a valid one, the task goes on. So it does if no
signature says that a session, which the user has resumed by hand, goes on from one of the task.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap.config.authority import IMPLIES
from ralph_wrap.errors import ConflictError, RalphError, StoppedError, UntrustedError, explained
from ralph_wrap.state import session_start
from ralph_wrap.state.project import Project, prepare_root, registries
from ralph_wrap.system import files
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.document import DocumentFormat, convert_fields
from ralph_wrap.system.log import Commands, get_logger

log = get_logger()

_KIND = "batch"  # of what is signed here
_FORMAT = DocumentFormat(version=1, largest=64 << 20, indent=1)
_DIRECTORY = "batches"  # below the directory of a registry
_DIGITS = 16
_TOKEN = 8  # bytes
_TICK = 0.1  # seconds between two looks at a lock


class TaskState(NamedTuple):
    """What a batch remembers of one task.

    Attributes:
        token: each session of the task has it in its record.
        session: id of its newest session; empty before there is one.
        branch: its branch; empty if it has none.
        ended_by: the reason why it ended; empty before.
        exit_status: its exit status; ``None`` before.
        done: the task is done.
        cost_usd: what all its sessions have cost, as far as their agents have reported it.

    """

    token: str
    session: str = ""
    branch: str = ""
    ended_by: str = ""
    exit_status: int | None = None
    done: bool = False
    cost_usd: float = 0.0


def new_task() -> TaskState:
    """Return the state of a task whose first session starts now."""
    return TaskState(os.urandom(_TOKEN).hex())


def is_done(ended_by: str, exit_status: int, iterations: int) -> bool:
    """Return whether a session that ended like this has done its task.

    With ``-n 1``, the user wants no loop: then a successful iteration is the whole task.
    """
    return ended_by == "promise" or (ended_by == "max-iterations" and exit_status == 0 and iterations == 1)


class BatchState:
    """The state of a batch, which this process has locked.

    Arguments:
        directory: of the batch.
        project: of the batch.
        lock: the lock that only this process holds.

    Attributes:
        lock: as above; the process of a session frees its copy.
        tasks: the state of each task that was begun, by its key.

    """

    def __init__(self, directory: Path, project: Project, lock: files.FileLock) -> None:
        self._path = directory / "state.json"
        self._project = project
        self.lock = lock
        for leftover in files.temporaries(self._path):  # of a batch that was killed
            leftover.unlink(missing_ok=True)
        self.tasks: dict[str, TaskState] = self._read()

    @property
    def spent(self) -> float:
        """What all sessions of the batch have cost, in US dollars."""
        return sum(task.cost_usd for task in self.tasks.values())

    def keep(self, key: str, task: TaskState) -> None:
        """Remember what became of a task; it survives a power failure.

        Raises:
            OSError: the state cannot be written; the old one stays.

        """
        changed = {**self.tasks, key: task}
        fields = {name: state._asdict() for name, state in changed.items()}
        signature = session_start.signature(_KIND, [fields], self._path, self._project)
        files.replace(self._path, _FORMAT.encode({"tasks": fields, "signature": signature}), mode=0o600)
        self.tasks = changed

    def _read(self) -> dict[str, TaskState]:
        try:
            return _FORMAT.read(self._path, self._checked)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise UntrustedError(
                f"the state of the batch cannot be used: {error}",
                Commands.of(
                    "if it is yours, for example from another container: type the command with RALPH_TRUST=1",
                    f"to do every task of the file anew: rm {shlex.quote(os.fspath(self._path))}",
                ),
            ) from None

    def _checked(self, loaded: dict[str, Any]) -> dict[str, TaskState]:
        fields = loaded["tasks"]
        if loaded["signature"] != session_start.signature(_KIND, [fields], self._path, self._project):
            if self._project.environ.get(IMPLIES) != "1":  # in a container, the agent is there, too
                raise ValueError(f"another program or machine has written {self._path}, or it was moved")
            log.warning("batch.not_signed", f"{self._path} has no signature of this machine; it counts")
        return {key: convert_fields(task, TaskState) for key, task in fields.items()}


@contextlib.contextmanager
def opened(project: Project, file: Path, cancel: CancelToken) -> Iterator[BatchState]:
    """Lock the batch of a task file, and yield its state.

    Arguments:
        project: of the batch.
        file: the task file.
        cancel: ends the waiting for sessions of an earlier batch.

    Raises:
        ConflictError: another process does the tasks of this file.
        UntrustedError: another program has changed the state.
        StoppedError: a signal came.
        RalphError: no directory for the state can be written.

    """
    directory = _directory(project, file)
    lock = files.try_lock(directory / "lock")
    if lock is None:
        raise ConflictError(f"another process does the tasks of {file}", "to see its sessions: ralph-wrap ps")
    try:
        sessions = _lock_of_sessions(directory / "sessions.lock", cancel)
        try:
            yield BatchState(directory, project, lock)
        finally:
            sessions.release()
    finally:
        lock.release()


def _lock_of_sessions(path: Path, cancel: CancelToken) -> files.FileLock:
    """Wait until every session of an earlier batch has ended: it got SIGTERM when that batch was killed."""
    is_announced = False
    while (lock := files.try_lock(path)) is None:
        if cancel.requested:
            raise StoppedError("a signal came while sessions of the last batch still ran", "ralph-wrap ps")
        if not is_announced:
            log.event(
                "batch.waiting", "the last batch of this file was killed: waiting for its sessions to end"
            )
            is_announced = True
        time.sleep(_TICK)
    return lock


def _directory(project: Project, file: Path) -> Path:
    """Return the directory of a batch, which exists afterwards."""
    name = os.fsencode(session_start.relative(file.resolve(), project))
    digest = hashlib.sha256(name).hexdigest()[:_DIGITS]
    problem: OSError | None = None
    prepare_root(project)
    for registry in registries(project):
        try:
            registry.prepare()
            directory = registry.directory / _DIRECTORY / digest
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _require_no_symlink(directory.parent, directory)
        except OSError as error:
            problem = problem or error
        else:
            return directory
    known = explained(problem) if problem else RalphError("there is none")
    raise RalphError(f"no directory for the state of a batch can be written: {known.message}", known.hint)


def _require_no_symlink(*directories: Path) -> None:
    """Check that we write where we mean to.

    There is no fallback: an agent that makes a symlink would make the batch forget what it has done.
    """
    for directory in directories:
        if directory.is_symlink():
            raise RalphError(f"{directory} is a symlink, which is not followed", "replace it by a directory")
