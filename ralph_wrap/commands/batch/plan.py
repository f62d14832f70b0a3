"""Find the open tasks of a batch, by its file, its state, and the records of sessions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.commands.batch.state import BatchState, TaskState, is_done
from ralph_wrap.config.task_file import Task
from ralph_wrap.state import report
from ralph_wrap.state.ids import agent_id_of
from ralph_wrap.state.project import Project, registries
from ralph_wrap.state.record import SessionRecord, UnreadableRecord
from ralph_wrap.system.log import Commands, get_logger
from ralph_wrap.system.text import command, shortened

log = get_logger()

_TITLE = 48  # columns


class OpenTask(NamedTuple):
    """A task that is to do.

    Attributes:
        task: from the file.
        session: id of the session to go on with; empty if none has begun.

    """

    task: Task
    session: str = ""


class BatchTask(NamedTuple):
    """What became of a task.

    Attributes:
        key: names the task as long as its text stays the same.
        title: its first line.
        line: number of its first line in the file.
        done: it is done: the file says so, or its session has done it.
        id: the agent id of its newest session; ``None`` if no session has begun, like the next four.
        session: that session.
        branch: its branch; ``None`` if it has none.
        ended_by: the reason why it ended.
        exit_status: what its process has returned.
        cost_usd: what all its sessions have cost, as far as their agents have reported it.

    """

    key: str
    title: str
    line: int
    done: bool
    id: str | None
    session: str | None
    branch: str | None
    ended_by: str | None
    exit_status: int | None
    cost_usd: float


class _FoundSession(NamedTuple):
    record: SessionRecord
    directory: Path


def plan(tasks: Sequence[Task], state: BatchState, project: Project) -> list[OpenTask]:
    """Return the tasks to do, in the order of the file, and complete the state of those that were begun.

    A batch may have been killed before it wrote down what became of a task. The records of sessions know it.
    The user may also have gone on with a session by ``ralph-wrap resume``.

    Raises:
        OSError: the state cannot be written.

    """
    known = {state.tasks[task.key].token: task.key for task in tasks if task.key in state.tasks}
    sessions, unreadable = _sessions(project) if known else ({}, ())
    newest = _newest(sessions, known.keys())
    unknown = set()
    for token, key in known.items():
        before = state.tasks[key]
        if before.done:
            continue
        if problem := _problem(before, newest.get(token), unreadable):
            unknown.add(key)
            title = next(shortened(task.title, _TITLE) for task in tasks if task.key == key)
            log.error("task.unknown", f"{title}: whether it is done is not known: {problem[0]}", problem[1])
            continue
        if token not in newest:
            continue
        after = _completed(before, newest[token])
        if after.done and not _is_proven(newest[token], before, sessions, project):
            after = after._replace(done=False)
            log.warning(
                "task.unproven",
                f"{after.session}: its report says done, and no signature proves it; it goes on",
            )
        if after != before:
            state.keep(key, after)
    return [
        OpenTask(task, newest[token].record.session if (token := _token(state, task)) in newest else "")
        for task in tasks
        if not task.is_done
        and task.key not in unknown
        and not (task.key in state.tasks and state.tasks[task.key].done)
    ]


def outcome(tasks: Sequence[Task], state: BatchState) -> list[BatchTask]:
    """Return what became of each task, in the order of the file."""
    rows = []
    for task in tasks:
        known = state.tasks.get(task.key, TaskState(""))
        agent_id = agent_id_of(known.session)
        rows.append(
            BatchTask(
                key=task.key,
                title=task.title,
                line=task.line,
                done=task.is_done or known.done,
                id=agent_id,
                session=known.session or None,
                branch=known.branch or None,
                ended_by=known.ended_by or None,
                exit_status=known.exit_status,
                cost_usd=known.cost_usd,
            )
        )
    return rows


def _token(state: BatchState, task: Task) -> str:
    return state.tasks[task.key].token if task.key in state.tasks else ""


def _sessions(project: Project) -> tuple[dict[str, _FoundSession], tuple[UnreadableRecord, ...]]:
    """Return all sessions by their ids, the oldest first, and the records that cannot be read."""
    found, unreadable = {}, list[UnreadableRecord]()
    for registry in registries(project):
        for record in (*registry.finished(), *registry.unfinished()):
            if isinstance(record, SessionRecord):
                found[record.session] = _FoundSession(record, registry.sessions / record.session)
            else:
                unreadable.append(record)
    return dict(sorted(found.items())), tuple(unreadable)


def _problem(
    task: TaskState, newest: _FoundSession | None, unreadable: Sequence[UnreadableRecord]
) -> tuple[str, str] | None:
    """Return why nobody knows whether a task is done, and what to type; ``None`` if the files say it.

    Arguments:
        newest: its newest session, if a record has its token.
        unreadable: records that cannot be read; one of them may have its token.

    """
    if newest is not None:
        found = report.read(newest.directory / "report.json")
        if not isinstance(found, report.UnreadableReport):
            return None
        agent_id = newest.record.id
        return found.sentence, Commands.of(
            f"to see what its session did: {command('ralph-wrap', 'logs', agent_id)}",
            "if it is done: tick it off in the file",
            f"if not: {command('rm', found.path)}, and type the command again",
        )
    mine = agent_id_of(task.session)
    for record in unreadable:
        if mine in {None, record.id}:
            return (
                f"the record of session {record.id} cannot be read: {record.reason}",
                Commands.of(
                    "to see what it left: ralph-wrap review",
                    "if it is done: tick it off in the file; if not: move the record out of .ralph/run",
                ),
            )
    return None


def _newest(sessions: Mapping[str, _FoundSession], tokens: Collection[str]) -> dict[str, _FoundSession]:
    """Return the newest session for each token: it has the token, or goes on from a session that has it."""
    token_of: dict[str, str] = {}
    newest: dict[str, _FoundSession] = {}
    for session in sessions.values():
        token = session.record.task or token_of.get(session.record.resumes or "", "")
        if token in tokens:
            token_of[session.record.session] = token
            newest[token] = session
    return newest


def _completed(task: TaskState, session: _FoundSession) -> TaskState:
    """Return the state of a task with what its newest session has left."""
    found = report.read(session.directory / "report.json")
    task = task._replace(session=session.record.session, branch=session.record.branch or "")
    if not isinstance(found, report.SessionReport):
        return task._replace(ended_by="", exit_status=None)
    return task._replace(
        ended_by=found.ended_by,
        exit_status=found.exit_status,
        done=is_done(found.ended_by, found.exit_status, found.iterations),
    )


def _is_proven(
    session: _FoundSession, task: TaskState, sessions: Mapping[str, _FoundSession], project: Project
) -> bool:
    """Return whether a session itself has written its report, and belongs to a task.

    An agent can write reports and records. A session of the batch signs its report with the token. One that a
    user has resumed has no token. Its signed report names the session before it, and so on. The first of them
    has the token, or the signed state names it.
    """
    while True:
        record, directory = session
        found = report.read(directory / "report.json")
        if not isinstance(found, report.SessionReport):
            return False
        if (found.session, found.resumes) != (record.session, record.resumes):
            return False
        if not found.is_proven(record.task, directory, project):
            return False
        earlier = record.resumes or ""
        if record.task == task.token or (earlier and earlier == task.session):
            return True
        if earlier not in sessions or earlier >= record.session:
            return False
        session = sessions[earlier]
