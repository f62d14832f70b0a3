"""The sessions of a run on the remote: their ids, and the claims on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.errors import RalphError
from ralph_wrap.state import remote_claim
from ralph_wrap.state.ids import wide_agent_id

if TYPE_CHECKING:
    from ralph_wrap.fleet.remote import FleetRemote
    from ralph_wrap.state.remote_claim import RemoteClaim


def free_id(remote: FleetRemote) -> str:
    """Return an agent id that the remote does not have.

    Errors are those of :meth:`FleetRemote.listed`.
    """
    while True:
        agent_id = wide_agent_id()
        heads, claims = f"refs/heads/ralph/{agent_id}*", remote_claim.ref_of(agent_id)
        if not remote.listed(heads, claims, f"refs/ralph/*/{agent_id}/*"):
            return agent_id


def claim_of(remote: FleetRemote, agent_id: str) -> tuple[RemoteClaim | None, str]:
    """Return the claim on a session with its object id, which is empty if there is none.

    Raises:
        RalphError: the claim is damaged, or the remote does not answer.

    """
    ref = remote_claim.ref_of(agent_id)
    if not (found := remote.listed(ref)):
        return None, ""
    content = remote.blobs(found).get(ref, b"")
    try:
        return remote_claim.decode(content, agent_id), found[ref]
    except ValueError as error:
        raise RalphError(f"the claim on session {agent_id} cannot be read: {error}") from None
