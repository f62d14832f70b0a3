"""Keep a session on a remote while it runs, so that it can go on on another machine.

Each push brings branch, saved work, newest snapshot and claim in one transaction: all of it, or nothing. It
follows each iteration, comes at least once a beat while one runs, and ends with the end of the session. A
remote that is down, slow or full costs no iteration: the session tries again, with growing waits.

A session that finds another claim in the place of its own is *fenced*: another machine goes on with it. It
ends its agent, and pushes what it has to ``refs/ralph/rescue/<id>/<session>/``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ralph_wrap.errors import GitError
from ralph_wrap.git import (
    RemoteChange,
    list_refs,
    push_error,
    set_refs,
    start_atomic_push,
    start_fetch,
    store_blob,
)
from ralph_wrap.session.remote.messages import MirrorMessages
from ralph_wrap.session.remote.push import LONGEST_PUSH
from ralph_wrap.session.remote.view import Standing
from ralph_wrap.state import remote_claim
from ralph_wrap.state.remote_refs import everything, fetched, refspecs, tracking

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ralph_wrap.git import Git
    from ralph_wrap.session.remote.view import RemoteView
    from ralph_wrap.state.remote_claim import RemoteClaim
    from ralph_wrap.system.cancel import CancelToken
    from ralph_wrap.system.log import Log
    from ralph_wrap.system.process import RunningCommand

_PATIENCE_FOR_WITHDRAWAL = 5.0  # seconds
_GLANCE = 0.01  # seconds; with 0 Popen.communicate never notices the end of a command
_LOOK = 0.2  # seconds between two looks at a running command
_WHILE_RUNNING = 1.0  # seconds between two looks while the agent works
_LONGEST_WAIT = 600.0  # seconds between two attempts
_LONGEST_PAUSE = 15.0  # seconds between two attempts at the end


class Mirror:
    """Pushes the state of one session to a remote; one git command runs at a time, beside the agent.

    Arguments:
        git: at the project root.
        remote: name of the remote.
        claim: the claim that the remote has, or is to have.
        view: what the remote has.
        patience: seconds for the last push at the end, and those after a SIGTERM.
        fence: ends the agent; called once, if another machine has taken the session over.
        cost: returns the cost that the agent has reported, in US dollars; ``None`` if it reported none.

    Attributes:
        due: time of the next push, as :func:`time.monotonic` counts.
        spare: called with the pids of our processes, so that they do not count as the agent's.

    """

    def __init__(
        self,
        git: Git,
        remote: str,
        claim: RemoteClaim,
        view: RemoteView,
        *,
        patience: tuple[float, float],
        fence: Callable[[], object],
        cost: Callable[[], float | None],
        log: Log,
    ) -> None:
        self._git = git
        self._remote = remote
        self._claim = claim
        self._view = view
        self.spare: Callable[..., None] = lambda *_: None
        self._patience, self._patience_at_term = patience
        self._fence = fence
        self._cost = cost
        self._log = log
        self._messages = MirrorMessages(remote, log)
        self._running: RunningCommand | None = None
        self._ends: Callable[[RunningCommand], None] = self._end_push
        self._snapshot: str | None = None
        self._failures, self._reason, self._limit = 0, "", 0.0
        self._next_look = 0.0
        self.due = time.monotonic() + claim.beat

    @property
    def wakes(self) -> float:
        """When :meth:`go_on` has something to do, as :func:`time.monotonic` counts."""
        return self.due if self._running is None else self._next_look

    def go_on(self, iteration: int, snapshot: str | None, *, now: bool = False) -> None:
        """Do what is due, without waiting: look at the running command, start the next one.

        Arguments:
            iteration: number of iterations that were started.
            snapshot: ref of the newest snapshot; ``None`` if nothing is uncommitted.
            now: an iteration has ended, so a push is due, unless the last one failed.

        """
        self._snapshot = snapshot
        self._claim = self._claim._replace(iteration=iteration)
        if not self._has_ended(_GLANCE) and not self._is_stuck():
            self._next_look = time.monotonic() + _WHILE_RUNNING
            return
        if time.monotonic() >= self.due or (now and not self._failures):
            self._attempt()

    def finish(self, cancel: CancelToken, iteration: int, ended_by: str) -> None:
        """Push the end of the session, and try again until it is there or the time is over.

        Arguments:
            cancel: a SIGTERM shortens the time, a second signal ends it.
            iteration: number of iterations that were started.
            ended_by: as in ``report.json``.

        """
        state = remote_claim.DONE if ended_by == "promise" else remote_claim.STOPPED
        self._claim = self._claim._replace(state=state, iteration=iteration, ended_by=ended_by)
        self._snapshot = None  # the work is saved on a branch now
        deadline = time.monotonic() + self._patience
        pause = _LOOK
        try:
            self._await(deadline, cancel)
            while not self._is_over(deadline, cancel):
                failures = self._failures
                self._attempt()
                self._await(deadline, cancel)
                if self._failures == 0 and not self._view.in_doubt:
                    return
                if self._failures > failures:
                    _sleep(min(pause, deadline - time.monotonic()), cancel)
                    pause = min(pause * 2, _LONGEST_PAUSE)
        finally:
            self._log.progress("")
            self._give_up()
            wanted = self._view.wanted(list_refs(self._git, *self._view.patterns), None)
            missing = self._view.missing(wanted)
            if self._failures or missing:
                self._messages.incomplete(missing, self._reason)

    def withdraw(self) -> None:
        """Delete the claim: no agent has started, and there is no work."""
        if self._view.held is None or self._view.is_lost:
            return
        change = RemoteChange(self._view.claim_ref, self._view.held, None)
        with start_atomic_push(self._git, self._remote, [change]) as running:
            running.ended(_PATIENCE_FOR_WITHDRAWAL)

    def _attempt(self) -> None:
        """Start the next command: a push, or after a failed push a look at what the remote has."""
        self.due = time.monotonic() + self._claim.beat
        try:
            if self._view.in_doubt:
                self._ends = self._end_look
                specs = refspecs(self._remote, self._view.agent_id, self._claim.branch)
                self._running = start_fetch(self._git, self._remote, specs)
            else:
                self._ends = self._end_push
                self._claim = self._claim.next(cost_usd=self._cost())
                blob = store_blob(self._git, self._claim.encode())
                wanted = self._view.wanted(list_refs(self._git, *self._view.patterns), self._snapshot)
                if not (changes := self._view.changes(wanted, blob)):
                    self._failures = 0
                    return
                self._running = start_atomic_push(self._git, self._remote, changes)
        except (GitError, OSError) as error:
            self._fail(str(error))
            return
        self._limit = time.monotonic() + LONGEST_PUSH
        self.spare(self._running.pid)

    def _has_ended(self, timeout: float) -> bool:
        """Return whether no command runs any more; act on the end of one."""
        running = self._running
        if running is None:
            return True
        if not running.ended(timeout):
            return False
        self._leave(running, self._ends)
        return True

    def _is_stuck(self) -> bool:
        """Return whether the remote has not answered for a long time; the command is ended then."""
        if self._running is None or time.monotonic() < self._limit:
            return False
        self._leave(self._running, lambda running: running.end())
        self._fail(f"no answer after {LONGEST_PUSH:.0f} s")
        return True

    def _end_push(self, running: RunningCommand) -> None:
        if (completed := running.wait()).status == 0:
            _note(self._git, self._remote, self._view.acknowledge(), self._log)
            self._failures = 0
            self._log.event("mirror.pushed", remote=self._remote, sequence=self._claim.sequence)
        else:
            self._fail(push_error(completed))
            self.due = min(self.due, time.monotonic() + _LOOK)  # the look that follows tells what this means

    def _end_look(self, running: RunningCommand) -> None:
        if (completed := running.wait()).status != 0:
            self._fail(push_error(completed))
            return
        was_lost = self._view.is_lost
        found = fetched(list_refs(self._git, everything(self._remote)), self._remote)
        standing = self._view.compare(found)
        if standing is Standing.LOST and not was_lost:
            self._messages.fenced(self._claim.id, self._claim.session)
            self._fence()
        for ref in self._view.diverted:
            self._messages.diverted(ref, self._claim.id)

    def _fail(self, reason: str) -> None:
        self._failures += 1
        wait = min(self._claim.beat * 2 ** min(self._failures - 1, 10), _LONGEST_WAIT)
        self.due = time.monotonic() + wait
        self._reason = reason
        self._messages.failed(reason)

    def _await(self, deadline: float, cancel: CancelToken) -> None:
        """Wait for the running command."""
        while not self._has_ended(_LOOK) and not self._is_over(deadline, cancel):
            self._log.progress(f"push: {self._claim.branch} to {self._remote}")

    def _is_over(self, deadline: float, cancel: CancelToken) -> bool:
        less = max(0.0, self._patience - self._patience_at_term) if cancel.terms else 0.0
        return cancel.hurried or time.monotonic() >= deadline - less

    def _give_up(self) -> None:
        if self._running is not None:
            self._leave(self._running, lambda running: running.end())
            self._failures += 1
            self._reason = self._reason or "there was no time for it"

    def _leave(self, running: RunningCommand, end: Callable[[RunningCommand], object]) -> None:
        self.spare()
        self._running = None
        with running:
            end(running)


def _note(git: Git, remote: str, after: Mapping[str, str | None], log: Log) -> None:
    """Note what the remote has now, for a later start that finds it unreachable."""
    try:
        set_refs(git, {tracking(remote, ref): oid for ref, oid in after.items()})
    except GitError as error:
        log.event("mirror.not_noted", reason=str(error))


def _sleep(seconds: float, cancel: CancelToken) -> None:
    end, terms = time.monotonic() + seconds, cancel.terms
    while time.monotonic() < end and cancel.terms == terms and not cancel.hurried:
        time.sleep(_LOOK)
