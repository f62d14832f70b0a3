"""Bring the sessions of a remote into this repository: their branches, saved work, snapshots and records.

A fetched branch replaces a local one only if it contains it, or if the local one is what the fetch before has
brought. What it replaces becomes a snapshot. Everything else stays as it is, and the answer says so. Saved
work that the session has put back elsewhere becomes a snapshot here, too. No other branch is deleted.
"""

from __future__ import annotations

from collections.abc import Collection

from ralph_wrap.commands.fetch.bring import FetchedSession, SessionImport
from ralph_wrap.commands.fetch.remote import RemoteSessions
from ralph_wrap.errors import ConflictError
from ralph_wrap.state import remote_claim
from ralph_wrap.state.project import Project
from ralph_wrap.system.log import get_logger

log = get_logger()

__all__ = ["FetchedSession", "fetch", "take_over"]


def fetch(project: Project, remote: str, *, again: Collection[str] = ()) -> list[FetchedSession]:
    """Bring every session of a remote into this repository.

    Arguments:
        remote: its name.
        again: ids, branches or titles of sessions to bring even if they were dropped here.

    Raises:
        NotFoundError: there is no such remote.
        RalphError: the remote does not answer.

    """
    sessions = RemoteSessions(project, remote)
    ids = sessions.fetch()
    return SessionImport(project, sessions, again).bring(ids)


def take_over(project: Project, remote: str, name: str, *, at_once: bool) -> tuple[str, str]:
    """Bring one session into this repository; return its agent id, and the claim to take over.

    Arguments:
        remote: its name.
        name: an agent id or a session id, or a title that ``fetch`` has brought.
        at_once: the user knows that the session is dead, so nothing is waited for.

    Raises:
        NotFoundError: the remote has no such session.
        ConflictError: it runs, or this repository has other work under its names.
        RalphError: the remote does not answer.

    """
    sessions = RemoteSessions(project, remote)
    agent_id = sessions.id_of(name)
    oid, claim = sessions.fetch_one(agent_id)
    [entry] = SessionImport(project, sessions).bring([agent_id])
    if entry.state == remote_claim.RUNNING and not at_once:
        oid = sessions.wait_until_dead(oid, claim)
    oid, claim = sessions.settled(agent_id, oid, at_once=at_once)
    [entry] = SessionImport(project, sessions, [agent_id]).bring([agent_id])
    if entry.action == "left":
        raise ConflictError(f"session {agent_id} was not fetched: {entry.note}", "ralph-wrap review")
    if claim.incomplete:
        log.warning("work.missing", f"{claim.node} has work that {remote} lacks: {claim.incomplete}")
    return agent_id, remote_claim.ANY if at_once else oid
