"""The state of one index of a run: a blob that moves only by compare-and-swap.

Each blob has a nonce. If two workers push one object to one ref, git reports success to both.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from ralph_wrap.state import remote_claim
from ralph_wrap.state.ids import is_wide_agent_id
from ralph_wrap.state.remote_claim import RemoteClaim
from ralph_wrap.state.report import BLOCKED
from ralph_wrap.system.document import DocumentFormat, convert_fields
from ralph_wrap.system.text import plain

FINISHED = {"promise", "max-iterations", "max-stalls", "max-time", "max-cost", "max-tokens"}
"""The ends of a session after which its index is done; all other ends are failures."""

CLAIMED, DONE, STOPPED = "claimed", "done", "stopped"
"""The states of an index; the last two are final."""

_FORMAT = DocumentFormat(version=1, largest=1 << 16)
_NONCE = 16  # bytes
_LONGEST = 200  # characters of a text for people


class IndexState(NamedTuple):
    """The state of an index.

    Attributes:
        number: of the index; ``index`` in the blob.
        id: agent id of its session.
        state: :data:`CLAIMED`, :data:`DONE` or :data:`STOPPED`.
        session: session id of the last session; empty before its end.
        ended_by: why that ended, as in ``report.json``.
        iterations: number of iterations of it.
        nonce: makes the blob unique.

    """

    number: int
    id: str
    state: str = CLAIMED
    session: str = ""
    ended_by: str = ""
    iterations: int = 0
    nonce: str = ""

    @property
    def is_final(self) -> bool:
        """Whether no worker goes on with it."""
        return self.state != CLAIMED

    def encode(self) -> bytes:
        """Return the content of its blob, with a new nonce."""
        fields = self._asdict()
        return _FORMAT.encode({"index": fields.pop("number"), **fields, "nonce": os.urandom(_NONCE).hex()})


def is_done(claim: RemoteClaim) -> bool:
    """Return whether a session has ended for good."""
    is_over = claim.state == remote_claim.DONE or claim.ended_by in FINISHED
    return is_over and claim.state != remote_claim.RUNNING


def lacks_work(claim: RemoteClaim) -> bool:
    """Return whether a session has ended, and only its machine has some of its work."""
    return claim.state != remote_claim.RUNNING and bool(claim.incomplete)


def outcome(claim: RemoteClaim | None, *, stop_is_asked: bool, ran_here: bool) -> dict[str, Any] | None:
    """Return what an index becomes, if its session is at an end that no worker goes on from.

    If the remote lacks work of the session, only the worker that has the work can make the index done.

    Arguments:
        claim: on the session; ``None`` if no worker has run it.
        stop_is_asked: the user wants the session to stop.
        ran_here: the session of the claim ran in this worker.

    """
    if claim is None:
        return {"state": STOPPED} if stop_is_asked else None
    is_over = is_done(claim) and (ran_here or not lacks_work(claim))
    ends = is_over or stop_is_asked or claim.ended_by == BLOCKED  # without an answer, it would ask again
    if claim.state == remote_claim.RUNNING or not ends:
        return None
    return {
        "state": DONE if is_over else STOPPED,
        "session": claim.session,
        "ended_by": claim.ended_by,
        "iterations": claim.iteration,
    }


def decode_index(content: bytes, index: int) -> IndexState:
    """Return the state in a blob.

    Arguments:
        index: the number that its ref names.

    Raises:
        ValueError: it is damaged, forged, or of another version.

    """
    return _FORMAT.decode(content, lambda fields: _checked(fields, index))


def _checked(fields: dict[str, Any], index: int) -> IndexState:
    state = convert_fields(fields | {"number": fields["index"]}, IndexState)
    if state.number != index or state.iterations < 0:
        raise ValueError("a number that is not its own")
    if not is_wide_agent_id(state.id) or state.state not in {CLAIMED, DONE, STOPPED}:
        raise ValueError("an id or a state that is none")
    return state._replace(session=plain(state.session)[:_LONGEST], ended_by=plain(state.ended_by)[:_LONGEST])
