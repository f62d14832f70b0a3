"""The worker of one index: environment in, refs out.

It clones the remote into an empty directory, claims its index, runs the session of the index or resumes it,
and then marks the index. Everything that it does can happen twice, in two workers at once, or stop at any
point: the index and the claim of the session move only by compare-and-swap.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap.errors import ConflictError, RalphError, UnreachableError
from ralph_wrap.git import store_blob
from ralph_wrap.git.remote import RemoteChange
from ralph_wrap.interfaces.fleet.child import NO_ANSWER, EndedSession, ForkedSession
from ralph_wrap.interfaces.fleet.clone import WorkClone, open_clone
from ralph_wrap.interfaces.fleet.grace import GracePeriod, RemoteRetries
from ralph_wrap.interfaces.fleet.index import CLAIMED, IndexState, decode_index, lacks_work, outcome
from ralph_wrap.interfaces.fleet.order import WORK_STAYS, WorkOrder
from ralph_wrap.interfaces.fleet.output import SessionOutput
from ralph_wrap.interfaces.fleet.refs import index_ref, output_ref, stop_ref
from ralph_wrap.interfaces.fleet.remote import FleetRemote, InterruptedWorkError, claim_of, free_id
from ralph_wrap.interfaces.fleet.watch import HolderWatch, StopWatch
from ralph_wrap.state.remote_claim import RemoteClaim
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.signals import SignalHandlers

log = get_logger()

_FAILED = 1
_CRASHES = 3  # sessions of one worker that a signal may kill, such as the kernel without memory
_PAUSE = 10.0  # seconds until a worker looks again whether the session of its index is free
_LOOK = 5.0  # seconds between two looks at the claim of a worker that has the only copy of some work


class Attempt(NamedTuple):
    """One start of a session.

    Attributes:
        project: the clone.
        agent_id: of the session.
        options: of ``ralph-wrap run``, as texts by name.
        command: the agent's command; empty if an option names the agent.
        base: the commit that the run is based on.
        claim: object id of the claim on the session; empty if no worker has run it before.
        is_here: the last session ran in this clone.
        grace: seconds that its last push may take after a signal.

    """

    project: Path
    agent_id: str
    options: Mapping[str, str | None]
    command: tuple[str, ...]
    base: str
    claim: str
    is_here: bool
    grace: float


class Worker:
    """The worker of one index.

    Arguments:
        order: what the engine asks for.
        environ: the environment of git.
        signals: entered handlers.
        run_session: runs a session in a child process, and returns its exit status.

    """

    def __init__(
        self,
        order: WorkOrder,
        environ: Mapping[str, str],
        signals: SignalHandlers,
        run_session: Callable[[Attempt], int],
    ) -> None:
        self._order = order
        self._environ = environ
        self._signals = signals
        self._run_session = run_session
        self._grace = GracePeriod(signals.cancel, order.grace)
        self._patience = RemoteRetries(self._grace)
        self._output = SessionOutput()
        self._holder = HolderWatch()
        self._crashes, self._has_worked = 0, False
        self._clone: WorkClone
        self._remote: FleetRemote

    def run(self) -> int:
        """Work on the index, and return the exit status of the worker.

        Raises:
            RalphError: the worker cannot work.

        """
        try:
            self._clone = open_clone(self._order, self._environ, self._patience)
            self._remote = self._clone.remote
            while (status := self._step()) is None:
                pass
        except InterruptedWorkError:
            return self._end_by_signal()
        return status

    def _step(self) -> int | None:
        """Do what the state on the remote asks for; return the exit status, ``None`` for one more step."""
        state, oid = self._patience.repeat(self._read_or_claim)
        if state.is_final:
            return self._end(state.id)
        claim, claim_oid = self._patience.repeat(lambda: claim_of(self._remote, state.id))
        before = self._clone.sessions(state.id)
        if self._holder.must_wait(claim, claim_oid, before):
            self._patience.pause(_LOOK)
            return None
        if end := self._outcome(claim, state.id):
            return self._settle(state._replace(**end), oid)
        spent = (claim.total_cost or 0.0) if claim else 0.0
        options = self._clone.spec.options_of(self._order.number, spent)
        is_here = claim is not None and claim.session in before
        ended = self._patience.repeat(lambda: self._run(state, claim_oid, options, is_here=is_here))
        self._has_worked |= not ended.is_refused
        self._patience.is_ending = True  # from here on there is something to push
        if self._has_worked:
            self._clone.rescue(state.id, self._patience)
        self._output.report = self._clone.report(state.id)
        return self._after(state, ended, {*self._clone.sessions(state.id)} - {*before})

    def _after(self, state: IndexState, ended: EndedSession, ours: set[str]) -> int | None:
        """Decide what follows the end of a session.

        Arguments:
            ours: session ids of this worker's last start.

        """
        claim, _ = self._patience.repeat(lambda: claim_of(self._remote, state.id))
        is_kept_back = self._grace.has_begun and claim is not None and lacks_work(claim)
        if self._outcome(claim, state.id) and not is_kept_back:
            return None  # the next step settles it
        self._patience.repeat(lambda: self._push_output(None))
        if self._grace.has_begun:
            return self._end_by_signal()
        self._patience.is_ending = False
        is_elsewhere = claim is not None and claim.session not in ours and bool(ours)
        if is_elsewhere or (ended.is_refused and ended.status == ConflictError.exit_code):
            self._patience.pause(_PAUSE * random.uniform(0.5, 1.5))  # noqa: S311 -- jitter
            return None
        self._crashes += ended.is_crashed
        return None if ended.is_crashed and self._crashes < _CRASHES else _FAILED

    def _outcome(self, claim: RemoteClaim | None, agent_id: str) -> dict[str, Any] | None:
        ran_here = claim is not None and claim.session in self._clone.sessions(agent_id)
        return outcome(claim, stop_is_asked=self._clone.stop_is_asked, ran_here=ran_here)

    def _settle(self, state: IndexState, oid: str) -> int:
        """Mark the index as done or stopped, together with the output."""
        self._patience.is_ending = True
        ref = index_ref(self._order.run, self._order.number)
        change = RemoteChange(ref, oid, store_blob(self._remote.git, state.encode()))
        # If another worker was faster, the index is final all the same: only a final state replaces a claim.
        self._patience.repeat(lambda: self._push_output(change))
        log.event("fleet.settled", f"index {state.number} is {state.state}: session {state.id}")
        return self._end(state.id)

    def _end(self, agent_id: str) -> int:
        """Return the exit status for an index that is done: after 0, an engine deletes the workspace."""
        self._patience.is_ending = True
        self._patience.repeat(lambda: self._push_output(None))  # of a session that was fenced
        # Without a session here, the clone has only what was on the remote, and may have been replaced there.
        lacking = self._patience.repeat(lambda: self._clone.lacking(agent_id)) if self._has_worked else {}
        return _status(self._clone, lacking, 0)

    def _end_by_signal(self) -> int:
        """Return the exit status after a signal. There may be no time to ask the remote again."""
        status = self._grace.exit_status
        if not self._has_worked:
            return status
        return _status(self._clone, self._clone.unconfirmed(), status)

    def _read_or_claim(self) -> tuple[IndexState, str]:
        """Return the state of the index with its object id; claim the index if no worker has."""
        run, index = self._order.run, self._order.number
        ref = index_ref(run, index)
        while True:
            found = self._remote.listed(ref, stop_ref(run, "*"))
            if ref in found:
                content = self._remote.blobs({ref: found[ref]}).get(ref)
                if content is None:  # another worker has moved the index between the two calls
                    continue
                state = self._decoded(content, ref)
                self._clone.stop_is_asked = stop_ref(run, state.id) in found
                return state, found[ref]
            self._stagger()
            state = IndexState(index, free_id(self._remote), CLAIMED)
            self._remote.change([RemoteChange(ref, None, store_blob(self._remote.git, state.encode()))])

    def _decoded(self, content: bytes, ref: str) -> IndexState:
        """Return the state of the index; whoever may push can have written anything there.

        Raises:
            RalphError: it is damaged, forged, or of another version.

        """
        try:
            return decode_index(content, self._order.number)
        except ValueError as error:
            raise RalphError(
                f"{ref} on the remote cannot be read: {error}",
                f"to begin this index anew, with all branches in their places: git push origin :{ref}",
            ) from None

    def _stagger(self) -> None:
        """Wait before a first start: of many agents that start at once, most are rate limited."""
        spec = self._clone.spec
        position = self._order.number % spec.parallel
        self._patience.pause(position * spec.stagger * random.uniform(0.8, 1.2))  # noqa: S311 -- jitter

    def _run(
        self, state: IndexState, claim_oid: str, options: Mapping[str, str | None], *, is_here: bool
    ) -> EndedSession:
        spec = self._clone.spec
        attempt = Attempt(
            self._clone.path,
            state.id,
            options,
            spec.command,
            self._clone.base,
            claim_oid,
            is_here,
            self._order.grace,
        )
        child = ForkedSession(lambda: self._run_session(attempt))
        stop = stop_ref(self._order.run, state.id)
        with StopWatch(self._remote, stop, lambda: self._clone.stop(state.id)) as watch:
            ended = child.wait(self._signals, self._grace, self._output.keep, watch.look)
        if ended.is_refused and ended.status == NO_ANSWER:
            raise UnreachableError(f"session {state.id} cannot begin: {self._remote.name} does not answer")
        return ended

    def _push_output(self, index: RemoteChange | None) -> None:
        """Push what the sessions have printed, with a change of the index."""
        ref = output_ref(self._order.run, self._order.number)
        changes = [] if index is None else [index]
        if self._output.has_news:
            before = self._remote.listed(ref).get(ref)
            self._remote.fetch([ref] if before else [])
            commit = self._output.commit(self._remote.git, before, self._order.number)
            changes.append(RemoteChange(ref, before, commit))
        if changes and self._remote.change(changes):
            self._output.has_news = False
        elif index is not None and self._remote.listed(index.ref).get(index.ref) == index.before:
            self._push_output(index)  # only the output was moved by another worker


def _status(clone: WorkClone, lacking: Iterable[str], status: int) -> int:
    """Return the exit status of a worker, and name the work that is only in its workspace.

    Arguments:
        lacking: refs of the clone with commits that the remote lacks.
        status: the exit status if the workspace may go.

    """
    if not (only_here := [*clone.kept_worktrees(), *lacking]):
        return status
    log.warning(
        "fleet.work_stays",
        f"the workspace has work that the remote has not confirmed: {', '.join(only_here)}",
        f"cd {clone.path}",
    )
    return WORK_STAYS
