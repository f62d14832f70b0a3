"""Decide what becomes of the refs of a hub and its origin: a pure function of what both have and had.

If only one side has moved a ref, the other side follows. If both have, origin wins: another machine has taken
the session over there, or a user has. The session at the hub then finds its claim replaced, and is fenced.
Its commits stay in a rescue ref.

A user can delete a branch at origin, or move it back. The hub follows, and keeps below ``refs/hub/kept/`` the
commits that origin lacks then. A rescue ref would bring them back to origin, after the user has dropped them.

A claim and the work of its session move together. If origin has moved a claim, the hub takes over all refs of
its session from origin. A push of the branch would get in the way of the session that has the claim now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.git.remote import RemoteChange
from ralph_wrap.interfaces.fleet.hub.repository import HUBS, KEPT, is_ours
from ralph_wrap.session.remote.view import RESCUE
from ralph_wrap.state.remote_claim import CLAIMS
from ralph_wrap.state.remote_refs import owner_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_DIGITS = 12
_HEADS = "refs/heads/"


class RefMove(NamedTuple):
    """The change of one ref of the hub.

    Attributes:
        ref: its full name.
        before: what it is now; ``None`` if it does not exist.
        after: what it becomes.
        agreed: what origin has; the hub notes it.
        rescue: the ref that keeps *before*; empty if nothing is lost.

    """

    ref: str
    before: str | None
    after: str | None
    agreed: str | None
    rescue: str = ""


class HubPlan(NamedTuple):
    """What to do.

    Attributes:
        moves: changes of refs of the hub.
        pushes: changes of refs of origin.

    """

    moves: list[RefMove]
    pushes: list[RemoteChange]


def plan(
    ours: Mapping[str, str],
    theirs: Mapping[str, str],
    agreed: Mapping[str, str],
    pushing: Mapping[str, str],
    deletion: str,
    lacking: Collection[str] = (),
) -> HubPlan:
    """Return what to do, given object ids by ref.

    Arguments:
        ours: what the hub has.
        theirs: what origin has.
        agreed: what both had when they agreed last.
        pushing: what a push has brought to origin, if origin has taken it.
        deletion: stands for no object in *pushing*.
        lacking: commits of the hub that no ref of origin holds any more.

    """
    found = HubPlan([], [])
    refs = sorted(ref for ref in {*ours, *theirs, *agreed} if not ref.startswith(HUBS))
    moved = {
        ref
        for ref in refs
        if theirs.get(ref) not in {agreed.get(ref), ours.get(ref)}
        and pushing.get(ref) != (theirs.get(ref) or deletion)  # or our own push has
    }
    claims = {ref for ref in moved if ref.startswith(CLAIMS)}
    fenced = {owner_of(ref) for ref in claims} - {None}
    has_worked_on = {owner_of(ref) for ref in claims if ref in theirs}  # and replaced its own snapshots
    for ref in refs:
        at_hub, at_origin, base = ours.get(ref), theirs.get(ref), agreed.get(ref)
        if not is_ours(ref):
            if at_hub != at_origin or base != at_origin:
                found.moves.append(RefMove(ref, at_hub, at_origin, at_origin))
            continue
        is_fenced = owner_of(ref) in fenced and not ref.startswith(RESCUE)
        if ref in moved or (is_fenced and at_hub != at_origin):
            if at_hub not in {base, None}:
                keeper = _rescue(ref, at_hub)
            else:
                keeper = (
                    _kept(ref, at_hub) if at_hub in lacking and owner_of(ref) not in has_worked_on else ""
                )
            found.moves.append(RefMove(ref, at_hub, at_origin, at_origin, keeper))
            continue
        if at_origin != base:
            found.moves.append(RefMove(ref, at_hub, at_hub, at_origin))
        if at_hub != at_origin:
            found.pushes.append(RemoteChange(ref, at_origin, at_hub))
    return found


def _rescue(ref: str, oid: str | None) -> str:
    """Return the ref that keeps what origin has replaced; empty for a ref without commits of an agent."""
    agent_id = owner_of(ref)
    if agent_id is None or oid is None or ref.startswith(CLAIMS):
        return ""
    return f"{RESCUE}{agent_id}/hub-{oid[:_DIGITS]}/{ref.removeprefix('refs/')}"


def _kept(ref: str, oid: str | None) -> str:
    """Return the ref of the hub alone that keeps what origin has deleted."""
    return f"{KEPT}{oid[:_DIGITS]}/{ref.removeprefix('refs/')}" if oid else ""


def displaced(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Return the commits of sessions that the hub replaces at a restored origin, by the ref that keeps each.

    Another machine or a user can have pushed them there after the backup.
    """
    return {
        _rescue(ref, oid) if ref.startswith(_HEADS) else _kept(ref, oid): oid
        for ref, oid in theirs.items()
        if owner_of(ref) and not ref.startswith((CLAIMS, RESCUE)) and ours.get(ref) not in {None, oid}
    }


def at_risk(ours: Mapping[str, str], theirs: Mapping[str, str], agreed: Mapping[str, str]) -> set[str]:
    """Return the commits of sessions that origin had, and that it perhaps lacks now.

    Rescue refs do not count: a user who deletes one at origin wants it to stay away.
    """
    return {
        oid
        for ref, oid in ours.items()
        if owner_of(ref)
        and not ref.startswith((CLAIMS, RESCUE))
        and agreed.get(ref) == oid
        and theirs.get(ref) != oid
    }
