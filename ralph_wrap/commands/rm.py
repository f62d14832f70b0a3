"""Remove the worktree that a session kept at its end: later edits are saved, branches stay."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ralph_wrap.errors import RalphError, RefusedError
from ralph_wrap.session.recovery import SessionRecovery
from ralph_wrap.state import inventory
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.system import files
from ralph_wrap.system.log import on_stderr
from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralph_wrap.state.project import Project


class RemovedSession(NamedTuple):
    """The result for one session.

    Attributes:
        id: agent id.
        session: session id.
        removed: its worktree was removed; false if it had none any more.
        saved: the branch that holds the uncommitted work.

    """

    id: str
    session: str
    removed: bool
    saved: str | None


def remove_all(project: Project, names: Iterable[str]) -> tuple[list[RemovedSession], RalphError | None]:
    """Save and remove the worktrees of sessions that have ended.

    Arguments:
        names: agent ids or session ids.

    Returns:
        The results of the removed ones, and the error of the others.

    """
    removed = []
    failures: list[RalphError] = []
    for name in names:
        try:
            removed.append(remove(project, name))
        except RalphError as error:
            failures.append(error)
    if not failures:
        return removed, None
    return removed, type(failures[0])("; ".join(error.message for error in failures), failures[0].hint)


def remove(project: Project, name: str) -> RemovedSession:
    """Save and remove the worktree of a session that has ended.

    Arguments:
        name: agent id or session id.

    Raises:
        UsageError: the name is neither.
        NotFoundError: the session does not exist.
        RefusedError: the worktree cannot be saved in full, or the session has not ended; it stays.
        RalphError: another process removes it at this moment.

    """
    session = inventory.find(project, name)
    if session.record is None or session.directory is None or session.verdict is not Verdict.FINISHED:
        raise RefusedError(
            f"session {session.name} is {session.verdict.value}: its worktree stays", session.note
        )
    record = session.record
    lock = files.try_lock(session.directory)
    if lock is None:
        raise RalphError(f"another process removes the worktree of session {session.name} at this moment")
    log = on_stderr(project.environ)
    try:
        log.attach(session.directory / "events.jsonl", agent_id=record.id, session_id=record.session)
        recovery = SessionRecovery(project, session.home, record, log)
        tree = recovery.worktree()
        if tree is None:
            log.event("worktree.missing", f"session {record.session} has no worktree (any more)")
            return RemovedSession(record.id, record.session, removed=False, saved=None)
        outcome = recovery.leave(tree, for_good=True)
        recovery.write_report(outcome)
    finally:
        log.close()
        lock.release()
    if outcome.kept:
        raise RefusedError(
            f"worktree of session {record.session} kept: {outcome.kept}",
            f"to delete it with all its files: git worktree remove -f -f {shlex.quote(str(tree.path))}",
        )
    return RemovedSession(
        record.id, record.session, removed=True, saved=outcome.saved.branch if outcome.saved else None
    )
