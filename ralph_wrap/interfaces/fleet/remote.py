"""The remote that the workers of a run meet at: read refs, fetch them, move them by compare-and-swap."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from ralph_wrap.errors import RalphError, UnreachableError
from ralph_wrap.git import Git, decode_lines, list_refs
from ralph_wrap.git.remote import (
    RemoteChange,
    Silence,
    leased_push,
    push_error,
    pushed_deletion,
    start_fetch,
    start_remote_listing,
)
from ralph_wrap.git.safe.batch import read_blobs
from ralph_wrap.state import remote_claim
from ralph_wrap.state.ids import wide_agent_id
from ralph_wrap.state.remote_claim import RemoteClaim
from ralph_wrap.state.remote_refs import fetched, tracking
from ralph_wrap.system.process import CompletedCommand, RunningCommand

MOST_REFS = 2000
"""Refs of one command: with 10,000, its command line is too long for execve(2)."""

_LOOK = 0.1  # seconds between two looks at a running command
_PATIENCE = 120.0  # seconds of silence after which the remote counts as unreachable
_LONGEST_PATIENCE = 600.0  # the same at most; also for a push that deletes tens of thousands of refs


class InterruptedWorkError(RalphError):
    """The worker has no time left for the remote."""


class FleetRemote:
    """One remote of a repository.

    Arguments:
        git: at the repository.
        name: of the remote.
        is_over: whether no time is left for the remote.

    """

    def __init__(self, git: Git, name: str, is_over: Callable[[], bool] = lambda: False) -> None:
        self.git = git
        self.name = name
        self._is_over = is_over
        self._patience = _PATIENCE

    def listed(self, *patterns: str) -> dict[str, str]:
        """Return the object ids of the refs that match a pattern, by ref.

        Raises:
            UnreachableError: the remote does not answer.
            InterruptedWorkError: no time is left.

        """
        with start_remote_listing(self.git, self.name, *patterns) as running:
            completed = self._completed(running, fetches=True)
        if completed.status != 0:
            raise self._unreachable(completed)
        rows = (row.split("\t", 1) for row in decode_lines(completed.stdout))
        return {ref: oid for oid, ref in rows}

    def fetch(self, refs: Iterable[str]) -> None:
        """Fetch refs that exist on the remote; errors are those of :meth:`listed`."""
        specs = [f"+{ref}:{tracking(self.name, ref)}" for ref in refs]
        for start in range(0, len(specs), MOST_REFS):
            with start_fetch(self.git, self.name, specs[start : start + MOST_REFS]) as running:
                completed = self._completed(running, fetches=True)
            if completed.status != 0:
                raise self._unreachable(completed)

    def fetched_below(self, prefix: str) -> dict[str, str]:
        """Fetch all refs below a prefix, which ends with a slash, and return them; errors as above."""
        with start_fetch(self.git, self.name, [f"+{prefix}*:{tracking(self.name, prefix)}*"]) as running:
            completed = self._completed(running, fetches=True)
        if completed.status != 0:
            raise self._unreachable(completed)
        refs = fetched(list_refs(self.git, tracking(self.name, prefix)), self.name)
        return {ref: oid for ref, oid in refs.items() if ref.startswith(prefix)}

    def blobs(self, refs: Mapping[str, str]) -> dict[str, bytes]:
        """Fetch refs that name blobs, and return their contents by ref; errors as for :meth:`listed`."""
        self.fetch(refs)
        contents = read_blobs(self.git, {*refs.values()})
        return {ref: contents[oid] for ref, oid in refs.items() if oid in contents}

    def change(self, changes: Sequence[RemoteChange]) -> bool:
        """Change refs, all of them or none; return whether the remote has them now.

        The answer to a push can be lost. So after a failure the remote is asked what it has. The objects of
        locks are unique, so no other worker can have pushed them.

        Raises:
            UnreachableError: the remote does not answer, or refuses for another reason than a lease.
            InterruptedWorkError: no time is left.

        """
        with leased_push(self.git, self.name, changes) as running:
            completed = self._completed(running)
        if completed.status == 0:
            return True
        found = self.listed(*(change.ref for change in changes))
        if all(found.get(change.ref) == change.after for change in changes):
            return True
        if all(found.get(change.ref) == change.before for change in changes):
            raise self._unreachable(completed)
        return False

    def change_many(self, changes: Sequence[RemoteChange]) -> bool:
        """Change any number of refs in their order, a part at a time; return whether the remote has all.

        Errors are those of :meth:`change`. The parts before an error, or before a part that the remote does
        not have, are done.
        """
        parts = range(0, len(changes), MOST_REFS)
        return all(self.change(changes[start : start + MOST_REFS]) for start in parts)

    def delete_below(self, prefix: str, refs: Mapping[str, str] | None = None) -> bool:
        """Delete all refs below a prefix, or none of them; return whether the remote has none now.

        Errors are those of :meth:`change`.

        Arguments:
            prefix: ends with a slash.
            refs: what the remote has there: with something else, it keeps all. ``None``: whatever it has.

        """
        with pushed_deletion(self.git, self.name, prefix, refs) as running:
            completed = self._completed(running, patience=_LONGEST_PATIENCE)
        if completed.status == 0 or not (found := self.listed(f"{prefix}*")):
            return True
        if refs is None or found == refs:
            raise self._unreachable(completed)
        return False

    def _completed(
        self, running: RunningCommand, *, fetches: bool = False, patience: float = 0
    ) -> CompletedCommand:
        """Wait for the end of a command; only silence ends it.

        A server that prepares a list of refs is silent, too. So the next attempt has twice the time, until a
        command ends within the first one.
        """
        begun, patience = time.monotonic(), max(patience, self._patience)
        silence = Silence(running, patience, fetches=fetches)
        while not running.ended(_LOOK):
            if self._is_over():
                raise InterruptedWorkError(f"there was no time to ask {self.name}")
            if silence.is_too_long:
                self._patience = min(2 * self._patience, _LONGEST_PATIENCE)
                raise UnreachableError(f"{self.name} was silent for {patience:.0f} s")
        if time.monotonic() < begun + _PATIENCE:
            self._patience = _PATIENCE
        return running.wait()

    def _unreachable(self, completed: CompletedCommand) -> UnreachableError:
        return UnreachableError(f"{self.name} does not answer: {push_error(completed)}")


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
    content = None
    while content is None:  # between the two calls its session may move the claim
        if not (found := remote.listed(ref)):
            return None, ""
        content = remote.blobs(found).get(ref)
    try:
        return remote_claim.decode(content, agent_id), found[ref]
    except ValueError as error:
        raise RalphError(f"the claim on session {agent_id} cannot be read: {error}") from None
