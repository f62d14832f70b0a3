"""What sessions there are: records joined with locks and branches, and the verdict on each."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING

from ralph_wrap import git, liveness, project, registry
from ralph_wrap.liveness import Life
from ralph_wrap.registry import Record, Unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralph_wrap.project import Project
    from ralph_wrap.registry import Registry


class Verdict(Enum):
    """What is known of a session; *foreign* and *unknown* ones are never touched."""

    LIVE = "live"
    ORPHAN = "orphan"
    FOREIGN = "foreign"
    FINISHED = "finished"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Entry:
    """One session.

    Attributes:
        id: agent id.
        session: session id, ``None`` if the record cannot be read.
        verdict: what is known of it.
        agent: what it runs.
        iteration: the one that runs, or ran last.
        age: seconds since it began.
        branch: what it works on.
        ahead: commits on *branch* since the session began.
        workspace: where it works.
        note: why the record cannot be read.

    """

    id: str
    session: str | None
    verdict: str
    agent: str | None
    iteration: int | None
    age: int | None
    branch: str | None
    ahead: int | None
    workspace: str | None
    note: str | None


def classify(record: Record, *, locked: bool, boot_id: str, host: str) -> Verdict:
    """Return the verdict on a record that can be read."""
    if record.state == "finished" and not locked:
        return Verdict.FINISHED
    life = liveness.judge(
        locked=locked, owner_boot_id=record.boot_id, owner_host=record.host, boot_id=boot_id, host=host
    )
    return {Life.ALIVE: Verdict.LIVE, Life.DEAD: Verdict.ORPHAN, Life.FOREIGN: Verdict.FOREIGN}[life]


def sessions(place: Project, environ: Mapping[str, str], now: datetime, *, finished: bool) -> list[Entry]:
    """Return every session of a project that is not finished, oldest first.

    Arguments:
        place: the project.
        environ: our environment.
        now: for the ages.
        finished: the finished ones too.

    """
    entries = []
    for home in project.registries(place, environ):
        for found in home.unfinished():
            entry = _entry(found, home, place, environ, now)
            # A record that is gone by now was released since it was read: it is among the finished ones.
            if home.has(found.id) and (finished or entry.verdict != Verdict.FINISHED.value):
                entries.append(entry)
        if finished:
            entries += [_entry(found, None, place, environ, now) for found in home.finished()]
    return sorted(entries, key=lambda entry: (entry.session or "", entry.id))


def _entry(
    found: Record | Unreadable,
    home: Registry | None,
    place: Project,
    environ: Mapping[str, str],
    now: datetime,
) -> Entry:
    """Return what is known of a record; *home* is the registry it lives in, ``None`` if it is finished."""
    if isinstance(found, Unreadable):
        return _unknown(found.id, found.reason)
    verdict = Verdict.FINISHED
    if home is not None:
        try:
            locked = home.is_locked(found.id)
        except OSError as error:
            return _unknown(found.id, f"its lock cannot be read: {error.strerror}")
        verdict = classify(found, locked=locked, boot_id=liveness.boot_id(), host=socket.gethostname())
    ahead = None
    if place.repository is not None and found.branch and found.base:
        ahead = git.count_commits(place.git(environ), found.base, f"refs/heads/{found.branch}")
    return Entry(
        id=found.id,
        session=found.session,
        verdict=verdict.value,
        agent=found.agent,
        iteration=found.iteration,
        age=max(0, int((now - registry.started(found.session)).total_seconds())),
        branch=found.branch,
        ahead=ahead,
        workspace=found.workspace,
        note=None,
    )


def _unknown(agent_id: str, reason: str) -> Entry:
    return Entry(
        id=agent_id,
        session=None,
        verdict=Verdict.UNKNOWN.value,
        agent=None,
        iteration=None,
        age=None,
        branch=None,
        ahead=None,
        workspace=None,
        note=reason,
    )
