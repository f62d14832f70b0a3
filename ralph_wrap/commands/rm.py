"""Remove the worktree that a session kept at its end: later edits are saved, branches stay."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from ralph_wrap.errors import RalphError, RefusedError
from ralph_wrap.session.kept_worktree import remove_kept
from ralph_wrap.session.worktree_view import worktree_of
from ralph_wrap.state import inventory
from ralph_wrap.state.advice import advice_for
from ralph_wrap.state.inventory import SessionEntry, Verdict
from ralph_wrap.state.project import Project
from ralph_wrap.system.log import Commands, lines_of
from ralph_wrap.worktree.save.index import status_of
from ralph_wrap.worktree.save.walk import walk


class RemovedSession(NamedTuple):
    """The result for one session.

    Attributes:
        id: agent id.
        session: session id.
        removed: its worktree was removed; false if it had none any more.
        saved: the branch that holds the uncommitted work.
        ignored: number of ignored files that went with the worktree.
        title: what people call the session; empty if it has no name and no prompt.

    """

    id: str
    session: str
    removed: bool
    saved: str | None
    ignored: int = 0
    title: str = ""


class RemovableSessions(NamedTuple):
    """What ``rm --all`` removes, and what it leaves; each with its state for people."""

    wanted: list[SessionEntry]
    others: list[SessionEntry]


def removable(project: Project) -> RemovableSessions:
    """Return the sessions with a worktree to remove, and those that must be ended or adopted first.

    A session that runs in the background is among the first ones: ``rm`` ends it. One that runs in a terminal
    is not, nor one that may live on another machine or whose record cannot be read.
    """
    entries = inventory.sessions(project, datetime.now(UTC), finished=False)
    wanted, others = list[SessionEntry](), list[SessionEntry]()
    for entry in entries:
        goes = entry.verdict in {Verdict.FINISHED.value, Verdict.ORPHAN.value}
        if entry.verdict == Verdict.LIVE.value:
            with contextlib.suppress(RalphError):  # it has ended meanwhile
                found = inventory.find(project, entry.session or entry.id)
                goes = bool(found.record and found.record.background)
        (wanted if goes else others).append(entry)
    return RemovableSessions(wanted, others)


def count_ignored(project: Project, entry: SessionEntry) -> int | None:
    """Return the number of files that are not saved, because git ignores them; ``None`` if it is unknown."""
    try:
        record = inventory.find(project, entry.session or entry.id).record
        tree = worktree_of(project, record) if record else None
        if tree is None:
            return None
        ignored = status_of(tree.git(project.git)).ignored
        return walk(tree.path, ()).count_below(ignored)
    except (RalphError, OSError):
        return None


def remove_all(project: Project, names: Iterable[str]) -> tuple[list[RemovedSession], RalphError | None]:
    """Save and remove the worktrees of sessions that have ended.

    Arguments:
        names: ids, branches or titles.

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
        except Exception as error:  # noqa: BLE001 -- one session must not block the others
            failures.append(RalphError(f"rm of session {name} failed: {error}"))
    if not failures:
        return removed, None
    first = failures[0]  # its kind decides the exit status
    first.message = "; ".join(error.message for error in failures)
    return removed, first


def without_foreign(project: Project, names: Iterable[str]) -> tuple[list[str], RefusedError | None]:
    """Return the names of sessions that can be removed, and the error for those on another machine.

    Such a session may never answer a request to stop.
    """
    known, foreign = [], []
    for name in names:
        with contextlib.suppress(RalphError):  # the next step reports it
            session = inventory.find(project, name)
            if session.verdict is Verdict.FOREIGN:
                foreign.append(session)
                continue
        known.append(name)
    if not foreign:
        return known, None
    hints = [line for session in foreign for line in lines_of(advice_for(session.verdict, session.id))]
    words = ", ".join(session.name for session in foreign)
    return known, RefusedError(
        f"perhaps alive on another machine, and not touched: {words}", Commands.of(*hints)
    )


def remove(project: Project, name: str) -> RemovedSession:
    """Save and remove the worktree of a session that has ended.

    Arguments:
        name: an id, a branch or a title.

    Raises:
        UsageError: the title of several sessions fits.
        NotFoundError: the session does not exist.
        RefusedError: the worktree cannot be saved in full, or the session has not ended; it stays.
        RalphError: another process removes it at this moment.

    """
    session = inventory.find(project, name)
    if session.record is None or session.directory is None or session.verdict is not Verdict.FINISHED:
        raise RefusedError(
            f"session {session.name} is {session.verdict.value}: its worktree stays",
            advice_for(session.verdict, session.id),
        )
    record = session.record
    outcome = remove_kept(project, session.home, record)
    if outcome is None:
        return RemovedSession(record.id, record.session, removed=False, saved=None, title=record.title)
    saved = outcome.saved.branch if outcome.saved else None
    ignored = outcome.saved.ignored_files if outcome.saved else 0
    return RemovedSession(
        record.id, record.session, removed=True, saved=saved, ignored=ignored, title=record.title
    )
