"""Delete what is old and needed no more; ``worktree.retention`` and ``worktree.old_sessions`` decide that."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from ralph_wrap.errors import RalphError, explained
from ralph_wrap.state.long_logs import shorten_logs
from ralph_wrap.state.project import Project
from ralph_wrap.system.text import command, some
from ralph_wrap.worktree import old_sessions, retention
from ralph_wrap.worktree.old_sessions import OldSession

_NAMED = 3  # commits that a note names; it counts the others


class CleanedItem(NamedTuple):
    """One thing that is old.

    Attributes:
        kind: ``session`` (its record and its logs), ``output`` (a long log), ``branch`` (one that was
            dropped), or ``snapshots`` (of an id whose branch is gone).
        name: the session id, the name of the branch, or the agent id.
        action: ``deleted``; ``dropped`` (``ralph-wrap restore`` can bring it back for some time); ``waits``
            (it goes after a second look, a day after the first); ``shortened``; ``kept``. In a dry run
            ``would delete``, ``would drop`` or ``would shorten``.
        note: the reason, in words.
        size: of what goes of the files, in bytes; ``None`` of refs.
        title: what people call the session; empty if that is not known.

    """

    kind: str
    name: str
    action: str
    note: str
    size: int | None = None
    title: str = ""


class Cleaning(NamedTuple):
    """What a cleaning has done.

    Attributes:
        items: what is old.
        failures: why something else may be old, too; nothing of it was touched.

    """

    items: list[CleanedItem]
    failures: list[RalphError]


def clean(
    project: Project,
    *,
    keep_sessions: float,
    keep_dropped: float,
    max_output: int,
    now: float,
    dry_run: bool = False,
) -> Cleaning:
    """Delete old records, logs, snapshots and dropped branches, and the middle of long logs.

    Arguments:
        keep_sessions: how many seconds the files of a finished session are kept; 0 keeps them for ever.
        keep_dropped: the same for a dropped branch.
        max_output: the longest output log, in bytes; 0: no limit.
        now: seconds since 1970.
        dry_run: delete nothing.

    """
    items, failures = list[CleanedItem](), list[RalphError]()

    def take(step: Callable[[], list[CleanedItem]]) -> None:
        try:
            items.extend(step())
        except RalphError as error:
            failures.append(error)
        except OSError as error:
            failures.append(explained(error))

    take(lambda: _sessions(project, keep_sessions, now, dry_run=dry_run))
    take(lambda: _outputs(project, max_output, dry_run=dry_run))
    if project.repository is not None:
        take(lambda: _branches(project, keep_dropped, now, dry_run=dry_run))
        take(lambda: _snapshots(project, now, dry_run=dry_run))
    return Cleaning(items, failures)


def _branches(project: Project, keep: float, now: float, *, dry_run: bool) -> list[CleanedItem]:
    action, note = "would delete" if dry_run else "deleted", "it was dropped, and can be restored no more"
    names = retention.expire(project, keep, now, dry_run=dry_run)
    return [CleanedItem("branch", name, action, note) for name in names]


def _snapshots(project: Project, now: float, *, dry_run: bool) -> list[CleanedItem]:
    items = []
    for found in retention.drop_loose_snapshots(project, now, dry_run=dry_run):
        action = "kept" if found.problem else "would drop" if dry_run else "dropped"
        count = f"{found.number} snapshot{'' if found.number == 1 else 's'}"
        items.append(
            CleanedItem("snapshots", found.id, action, f"{count}: {found.problem or 'the branch is gone'}")
        )
    return items


def _sessions(project: Project, keep: float, now: float, *, dry_run: bool) -> list[CleanedItem]:
    items = []
    for found in old_sessions.clean_sessions(project, keep, now, dry_run=dry_run):
        action, note = "would delete" if dry_run else "deleted", f"ended {_day(found.ended)}"
        if found.goes is not None:
            action, note = "waits", f"{note}; goes after {_moment(found.goes)}"
        if found.kept:
            action, note = "kept", f"{note}; {_kept_for(found)}"
        size = None if found.kept else found.size
        items.append(CleanedItem("session", found.session, action, note, size, found.title))
    return items


def _kept_for(session: OldSession) -> str:
    """Return why the files of a landed session stay for ever, and what ends that."""
    names = ", ".join(some([ref.rpartition("/")[2] for ref in session.kept], _NAMED))
    see, drop = command("git", "log", session.kept[0]), command("ralph-wrap", "drop", "--forever", session.id)
    return f"kept for {names}, which no branch had; to see it: {see}; to delete it with the branch: {drop}"


def _outputs(project: Project, limit: int, *, dry_run: bool) -> list[CleanedItem]:
    action = "would shorten" if dry_run else "shortened"
    note = "its output is longer than max_output"
    return [
        CleanedItem("output", found.session, action, note, found.size, found.title)
        for found in shorten_logs(project, limit, dry_run=dry_run)
    ]


def _day(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d}"


def _moment(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S} UTC"
