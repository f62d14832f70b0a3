"""The claim on a session that a remote keeps: which machine runs the session, and how it can go on.

A claim is a blob at ``refs/ralph/claims/<id>`` on the remote. It is the lock of the session there: git
changes the ref only for the machine that knows the claim before (``--force-with-lease``). Each claim has a
nonce, so no two are the same object. If two machines push one object to one ref, git reports success to both.

Everybody with access to the remote can write a claim, so any content is handled. Its command runs only after
the user has approved it.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import Any, NamedTuple

from ralph_wrap.config.parsers import SLOWEST_BEAT
from ralph_wrap.git import oid
from ralph_wrap.state import ids
from ralph_wrap.state.remote_refs import owner_of
from ralph_wrap.state.session_start import SessionStart
from ralph_wrap.system.document import DocumentFormat, convert_fields
from ralph_wrap.system.text import plain

CLAIMS = "refs/ralph/claims/"
"""The refs of the claims on a remote."""

RUNNING, STOPPED, DONE = "running", "stopped", "done"
"""The states in a claim; *done* is a kept promise."""

ANY = "*"
"""In the settings of a session that takes a claim over, whatever the claim is by then: the user wants it."""

_STATES = {RUNNING, STOPPED, DONE}
_FORMAT = DocumentFormat(version=1, largest=1 << 20)
_NONCE = 16  # bytes
_LONGEST = 200  # characters of a text for people
_MOST_DOLLARS = 1e12


class RemoteClaim(NamedTuple):
    """The claim of one session.

    Attributes:
        id: agent id.
        session: session id.
        epoch: number of times that another session has taken the claim over.
        sequence: number of pushes in this epoch. While it grows, the session lives.
        node: host name of the machine, for people. No decision uses it, and none uses a clock.
        state: :data:`RUNNING`, :data:`STOPPED` or :data:`DONE`.
        title: what people call the session; empty if it has no name and no prompt.
        agent: the agent or command, for people.
        branch: the session's branch.
        base: the commit that the branch started from.
        iteration: number of iterations that were started.
        cost_usd: the cost that the agent has reported, in US dollars; ``None`` if it reported none.
        earlier_cost_usd: the same of the sessions before it that had the claim; 0 if they reported none.
        ended_by: the reason of the end, as in ``report.json``; empty while the session runs.
        worktree: name of the worktree's directory.
        incomplete: why the remote lacks work that the machine has; empty if it lacks none.
        beat: longest time between two pushes while the session runs, in seconds.
        work: the ref of the remote with the newest uncommitted work; empty if all is committed.
        start: how the session was started; ``None`` if a program started it.
        nonce: makes the claim unique.

    """

    id: str
    session: str
    branch: str
    base: str
    epoch: int = 1
    sequence: int = 0
    node: str = ""
    state: str = RUNNING
    title: str = ""
    agent: str = ""
    iteration: int = 0
    cost_usd: float | None = None
    earlier_cost_usd: float = 0.0
    ended_by: str = ""
    incomplete: str = ""
    worktree: str = ""
    beat: float = 30.0
    work: str = ""
    start: SessionStart | None = None
    nonce: str = ""

    @property
    def is_on_own_branch(self) -> bool:
        """Whether the user named no other branch."""
        return self.branch == f"ralph/{self.id}"

    @property
    def total_cost(self) -> float | None:
        """The cost of this session and of those before it; ``None`` if no agent reported any."""
        if self.cost_usd is None and not self.earlier_cost_usd:
            return None
        return self.earlier_cost_usd + (self.cost_usd or 0.0)

    def next(self, **changes: Any) -> RemoteClaim:
        """Return the claim of the next push."""
        nonce = os.urandom(_NONCE).hex()
        return self._replace(sequence=self.sequence + 1, nonce=nonce, **changes)

    def encode(self) -> bytes:
        """Return the content of its blob."""
        return _FORMAT.encode(self._asdict() | {"start": self.start and self.start.to_dict()})


def ref_of(agent_id: str) -> str:
    """Return the ref of the claim on a remote."""
    return f"{CLAIMS}{agent_id}"


def decode(content: bytes, agent_id: str) -> RemoteClaim:
    """Return the claim in a blob.

    Arguments:
        agent_id: the id that the ref names.

    Raises:
        ValueError: it is damaged, forged, or of another version.

    """
    return _FORMAT.decode(content, lambda fields: _checked(fields, agent_id))


def _checked(fields: dict[str, Any], agent_id: str) -> RemoteClaim:
    start = _start(fields.pop("start", None))
    claim = convert_fields(fields, RemoteClaim)._replace(start=start)
    work = fields["work"]  # without it, nobody knows which of the refs is the newest work
    if min(claim.epoch, claim.sequence, claim.iteration) < 0:
        raise ValueError("a number below 0")
    if not claim.beat > 0:
        raise ValueError("a beat out of range")
    if not all(0 <= cost < _MOST_DOLLARS for cost in (claim.cost_usd or 0.0, claim.earlier_cost_usd)):
        raise ValueError("a cost that cannot be")
    if not oid.is_oid(claim.base):
        raise ValueError("a base that is no object id")
    if claim.state not in _STATES or claim.id != agent_id or (work and owner_of(work) != agent_id):
        raise ValueError("a state, an id or work that is not its own")
    for name in (claim.session, claim.worktree or claim.session):
        if not ids.is_session_id(name) or not name.endswith(f"-{agent_id}"):
            raise ValueError("a session id that is not its own")
    ids.started(claim.session)  # raises ValueError for a day or an hour that does not exist
    return claim._replace(
        node=_shown(claim.node),
        title=_shown(claim.title),
        agent=_shown(claim.agent),
        ended_by=_shown(claim.ended_by),
        incomplete=_shown(claim.incomplete),
        beat=min(claim.beat, SLOWEST_BEAT),  # a forged one would have other machines wait for days
    )


def _shown(text: str) -> str:
    return plain(text)[:_LONGEST]


def _start(fields: Any) -> SessionStart | None:
    if fields is None:
        return None
    start = convert_fields(fields, SessionStart)
    texts = (*start.options, *start.options.values(), *start.command, start.directory)
    if any("\0" in text for text in texts):
        raise ValueError("a text that no command line can have")
    return start._replace(options=MappingProxyType(start.options))
