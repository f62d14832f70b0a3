"""What a remote has of a session, as far as its answers show it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ralph_wrap.git.remote import RemoteChange
from ralph_wrap.state import remote_claim

HEADS = "refs/heads/"
SNAPSHOTS = "refs/ralph/snapshots/"
RESCUE = "refs/ralph/rescue/"
_MOST_UNANSWERED = 1000
"""Pushes without an answer that a session remembers: at one in 15 s, those of four hours."""


class ClaimState(Enum):
    """Whether the session still has its claim."""

    OURS = "ours"
    LOST = "lost"


class RemoteView:
    """The refs of one session on a remote: what it has, and what a push is to change.

    A push can succeed although its answer is lost, and also a while later: a server goes on with a push
    whose client has gone. So after a failure the session looks at the refs of the remote. They are as before
    the push, or as this push or an earlier one was to leave them, or another machine has moved them.

    A push that the remote has refused is forgotten: it cannot succeed later. Of the others the oldest are
    forgotten in the end. If the server takes one of those after all, the session counts as taken over: it
    ends its agent and pushes its work below ``refs/ralph/rescue/``.

    Arguments:
        agent_id: of the session.
        session: its session id.
        branch: its branch, without ``refs/heads/``.
        held: object id of the claim that the remote has; ``None`` if it has none.
        refs: refs of the remote; those of other sessions do not matter.

    Attributes:
        was_taken: the last comparison showed that the remote has taken a push without an answer.

    """

    def __init__(
        self, agent_id: str, session: str, branch: str, held: str | None, refs: Mapping[str, str]
    ) -> None:
        self.agent_id = agent_id
        self.branch_ref = f"{HEADS}{branch}"
        self.claim_ref = remote_claim.ref_of(agent_id)
        self.held = held
        self.is_lost = False
        self._rescue = f"{RESCUE}{agent_id}/{session}/"
        self._wip = f"{HEADS}ralph/{agent_id}-wip"
        self._branches = (self.branch_ref, self._wip)
        self._refs = self._own(refs)
        self._wanted: Mapping[str, str] = {}
        self._diverted: set[str] = set()
        self._local_commits: frozenset[str] = frozenset()  # commits that have a ref in this repository
        self._pushed: set[str] = set()  # refs that this session has pushed
        self._attempt: tuple[str | None, dict[str, str | None]] | None = None
        self._unanswered: dict[str, dict[str, str | None]] = {}  # by claim; all replace the same claim
        self._refused: str | None = None  # claim of a push
        self.was_taken = False

    @property
    def in_doubt(self) -> bool:
        """Whether a push has no answer yet, or failed: then :meth:`compare` comes first."""
        return self._attempt is not None

    @property
    def patterns(self) -> tuple[str, ...]:
        """The local refs to read before a push."""
        return *self._branches, f"{SNAPSHOTS}{self.agent_id}/"

    def wanted(self, local: Mapping[str, str], snapshot: str | None) -> dict[str, str]:
        """Return the refs that the remote is to have.

        Arguments:
            local: the refs of :attr:`patterns`.
            snapshot: the ref of the newest snapshot; ``None`` if nothing is uncommitted.

        """
        self._local_commits = frozenset(local.values())
        commits = f"{SNAPSHOTS}{self.agent_id}/commit-"  # work that is on no branch
        return {
            ref: oid
            for ref, oid in local.items()
            if not ref.startswith(SNAPSHOTS) or ref.startswith(commits) or ref == snapshot
        }

    def changes(self, wanted: Mapping[str, str], claim: str) -> list[RemoteChange]:
        """Return the changes of the next push, and remember them; there may be none.

        Without its claim, the session pushes to refs of its own below ``refs/ralph/rescue/``. It does the
        same for a branch that another program has moved on the remote.

        Arguments:
            wanted: the result of :meth:`wanted`.
            claim: object id of the new claim.

        """
        self._wanted = wanted
        after: dict[str, str | None] = {self.remote_ref(ref): oid for ref, oid in wanted.items()}
        for ref in self._refs.keys() - after.keys():
            if ref.startswith(f"{SNAPSHOTS}{self.agent_id}/") and self._may_go(ref):
                after[ref] = None  # an older snapshot
        if self._refs.get(self._wip) in wanted.values() and self._wip not in wanted:
            after[self.remote_ref(self._wip)] = None  # a session has put it back, and a snapshot has it
        after = {ref: oid for ref, oid in after.items() if self._refs.get(ref) != oid}
        changes = [RemoteChange(ref, self._refs.get(ref), oid) for ref, oid in sorted(after.items())]
        if not self.is_lost:
            changes.append(RemoteChange(self.claim_ref, self.held, claim))
        self._attempt = (None if self.is_lost else claim, after) if changes else None
        if not self.is_lost:
            self._remember(claim, after)
        return changes

    def claim_alone(self, claim: str) -> list[RemoteChange]:
        """Return the change of the claim, and remember it; a session without its claim has none.

        Arguments:
            claim: object id of the new claim.

        """
        if self.is_lost:
            return []
        self._attempt = claim, {}
        self._remember(claim, {})
        return [RemoteChange(self.claim_ref, self.held, claim)]

    def _remember(self, claim: str, after: dict[str, str | None]) -> None:
        self._unanswered[claim] = after
        if len(self._unanswered) > _MOST_UNANSWERED:
            del self._unanswered[next(iter(self._unanswered))]

    def note_failure(self, *, is_refused: bool) -> None:
        """Note that the last push has failed; :meth:`compare` follows.

        Arguments:
            is_refused: the remote has answered that it does not take it.

        """
        self._refused = self._attempt[0] if is_refused and self._attempt else None

    def acknowledge(self) -> dict[str, str | None]:
        """Record that the remote has taken the last push, and return what it has brought."""
        if self._attempt is None:
            return {}
        claim, after = self._attempt
        self._attempt = None
        if claim is not None:
            self.held, self._unanswered = claim, {}
        for ref, oid in after.items():
            if oid is None:
                self._refs.pop(ref, None)
            else:
                self._refs[ref] = oid
                self._pushed.add(ref)
        return after if claim is None else after | {self.claim_ref: claim}

    def compare(self, found: Mapping[str, str]) -> ClaimState:
        """Learn what the remote has after a failed push.

        Arguments:
            found: refs of the remote; those of other sessions do not matter.

        """
        claim = found.get(self.claim_ref)
        self.was_taken = claim is not None and claim in self._unanswered
        if claim is not None and self.was_taken:
            self._attempt = claim, self._unanswered[claim]
            self.acknowledge()
        elif claim != self.held:
            self.is_lost = True
        elif self._refused is not None:
            self._unanswered.pop(self._refused, None)
        self._attempt = self._refused = None
        for ref in self._branches:
            if found.get(ref) not in {self._refs.get(ref), self._wanted.get(ref)}:
                self._diverted.add(ref)
        self._refs = self._own(found)
        return ClaimState.LOST if self.is_lost else ClaimState.OURS

    def divert(self, ref: str) -> None:
        """Leave a branch of the remote alone: another program has moved it."""
        self._diverted.add(ref)

    @property
    def diverted(self) -> list[str]:
        """The branches that another program has moved on the remote."""
        return sorted(self._diverted)

    def missing(self, wanted: Mapping[str, str]) -> list[str]:
        """Return the local refs whose commits the remote does not have."""
        return sorted(ref for ref, oid in wanted.items() if self._refs.get(self.remote_ref(ref)) != oid)

    def _own(self, refs: Mapping[str, str]) -> dict[str, str]:
        ours = (f"{SNAPSHOTS}{self.agent_id}/", self._rescue)
        return {ref: oid for ref, oid in refs.items() if ref in self._branches or ref.startswith(ours)}

    def _may_go(self, ref: str) -> bool:
        """Return whether a snapshot on the remote is no longer needed there.

        The remote may have the only copy of what another machine has pushed. A claim brings no work yet, so
        with it every snapshot stays.
        """
        return not self.is_lost and (ref in self._pushed or self._refs[ref] in self._local_commits)

    def remote_ref(self, ref: str) -> str:
        """Return the ref of the remote that a local ref goes to."""
        if self.is_lost or ref in self._diverted:
            return self._rescue + ref.removeprefix("refs/")
        return ref
