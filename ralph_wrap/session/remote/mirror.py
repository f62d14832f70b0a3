"""Keep a session on a remote while it runs, so that it can go on on another machine.

Each push brings branch, saved work, newest snapshot and claim in one transaction: all of it, or nothing. It
follows each iteration, comes at least once a beat while one runs, and ends with the end of the session. A
remote that is down, slow or full costs no iteration: the session tries again, with growing waits. A signal
waits for nothing here: it ends the command that runs, and the end of the session pushes everything.

A session that finds another claim in the place of its own is *fenced*: another machine goes on with it. It
ends its agent, and pushes what it has to ``refs/ralph/rescue/<id>/<session>/``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, list_refs, set_refs, store_blob
from ralph_wrap.git.remote import (
    RemoteChange,
    Silence,
    is_refused,
    push_error,
    start_atomic_push,
    start_fetch,
)
from ralph_wrap.session.remote.messages import MirrorMessages
from ralph_wrap.session.remote.push import LONGEST_SILENCE
from ralph_wrap.session.remote.schedule import Schedule
from ralph_wrap.session.remote.submodules import SubmoduleWatch
from ralph_wrap.session.remote.view import ClaimState, RemoteView
from ralph_wrap.state import remote_claim
from ralph_wrap.state.remote_claim import RemoteClaim
from ralph_wrap.state.remote_refs import everything, fetched, refspecs, tracking
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.process import RunningCommand

log = get_logger()

_TO_WITHDRAW = 5.0  # seconds
_GLANCE = 0.01  # seconds; with 0 Popen.communicate never notices the end of a command
_WHILE_RUNNING = 1.0  # seconds between two looks while the agent works


class Mirror:
    """Pushes the state of one session to a remote; one git command runs at a time, beside the agent.

    Arguments:
        git: at the project root.
        remote: name of the remote.
        claim: the claim that the remote has, or is to have.
        view: what the remote has.
        fence: ends the agent; called once, if another machine has taken the session over.
        cost: returns the cost that the agent has reported, in US dollars; ``None`` if it reported none.
        submodules: of the session's worktree.
        cancel: the signals so far.

    Attributes:
        schedule: of the attempts.
        submodules: which submodules have work that the remote lacks.
        work: ref of the newest uncommitted work here; empty if there is none, ``None`` if that is unknown.
        spare: called with the pids of our processes, so that they do not count as the agent's.

    """

    def __init__(
        self,
        git: Git,
        remote: str,
        claim: RemoteClaim,
        view: RemoteView,
        *,
        fence: Callable[[], object],
        cost: Callable[[], float | None],
        submodules: SubmoduleWatch,
        cancel: CancelToken,
    ) -> None:
        self._git, self._remote, self._claim = git, remote, claim
        self.view = view
        self.spare: Callable[..., None] = lambda *_: None
        self._fence, self._cost = fence, cost
        self._cancel, self._log = cancel, log
        self._messages = MirrorMessages(remote)
        self.schedule = Schedule(claim.beat)
        self.submodules = submodules
        self._running: RunningCommand | None = None
        self._ends: Callable[[RunningCommand], None] = self._end_push
        self._with_work, self._lacking, self._next_look = True, "", 0.0
        self.work: str | None = None
        self._silence: Silence | None = None

    @property
    def wakes(self) -> float:
        """When :meth:`go_on` has something to do, as :func:`time.monotonic` counts."""
        return self.schedule.due if self._running is None else self._next_look

    def go_on(self, iteration: int, work: str | None, lacking: str = "", *, now: bool = False) -> None:
        """Do what is due, without waiting: look at the running command, start the next one.

        Arguments:
            iteration: number of iterations that were started.
            work: ref of the newest snapshot; empty if nothing is uncommitted, ``None`` if that is unknown.
            lacking: why the snapshot lacks work; empty if it lacks none.
            now: an iteration has ended, so a push is due, unless the last one failed.

        """
        self.work, self._lacking = self.work if work is None else work, lacking
        self._claim = self._claim._replace(iteration=iteration)
        if not self.has_ended(_GLANCE) and not self._is_stuck():
            self._next_look = time.monotonic() + _WHILE_RUNNING
            return
        if time.monotonic() >= self.schedule.due or (now and not self.schedule.is_failing):
            git = self._git._replace(cancel=self._cancel)
            self.attempt(whole=self.schedule.brings_work, git=git)

    def end(self, iteration: int, ended_by: str, work: str | None, lacking: str) -> None:
        """Take over how the session ended; the next push brings it.

        Arguments:
            iteration: number of iterations that were started.
            ended_by: as in ``report.json``.
            work: ref of the uncommitted work; empty if there is none, ``None`` if it is as before.
            lacking: why the refs lack work of the session; empty if they have all of it.

        """
        state = remote_claim.DONE if ended_by == "promise" else remote_claim.STOPPED
        self._claim = self._claim._replace(state=state, iteration=iteration, ended_by=ended_by)
        self.work, self._lacking = self.work if work is None else work, lacking

    def withdraw(self) -> None:
        """Delete the claim: no agent works on the branch, and there is no work."""
        if self.view.held is None or self.view.is_lost:
            return
        change = RemoteChange(self.view.claim_ref, self.view.held, None)
        with start_atomic_push(self._git, self._remote, [change]) as running:
            if running.ended(_TO_WITHDRAW) and running.wait().status == 0:
                self.view.held = None
                _note(self._git, self._remote, {self.view.claim_ref: None})

    def attempt(self, *, whole: bool, git: Git | None = None) -> None:
        """Start the next command: a push, or after a failed push a look at what the remote has.

        Arguments:
            whole: push the work, too, not the claim alone.
            git: for the preparation; normally no signal ends that.

        """
        git = git or self._git
        silence = self.schedule.begin()
        try:
            if self.view.in_doubt:
                self._ends = self._end_look
                specs = refspecs(self._remote, self.view.agent_id, self._claim.branch)
                self._running = start_fetch(self._git, self._remote, specs, silence=silence)
            else:
                self._ends = self._end_push
                self._with_work = whole
                wanted = self.view.wanted(list_refs(git, *self.view.patterns), self.work)
                lacking = self._lacks() if whole else self.schedule.reason
                if whole and (self.work == "" or self.work in wanted):
                    self._claim = self._claim._replace(work=self.work and self.view.remote_ref(self.work))
                self._claim = self._claim.next(cost_usd=self._cost(), incomplete=lacking)
                blob = store_blob(git, self._claim.encode())
                changes = self.view.changes(wanted, blob) if whole else self.view.claim_alone(blob)
                if not changes:
                    self.schedule.succeed(with_work=whole)
                    return
                self._running = start_atomic_push(self._git, self._remote, changes, silence=silence)
        except (GitError, OSError) as error:
            if not self._cancel.requested or git.cancel is None:
                self._fail(str(error))
            return
        self._silence = Silence(self._running, LONGEST_SILENCE, fetches=self._ends == self._end_look)
        self.spare(self._running.pid)

    def has_ended(self, timeout: float) -> bool:
        """Return whether no command runs any more; act on the end of one."""
        if (running := self._running) is None:
            return True
        if not running.ended(timeout):
            return False
        self._leave(running, self._ends)
        return True

    def _is_stuck(self) -> bool:
        """Return whether the remote was silent for a long time; the command is ended then."""
        if self._running is None or self._silence is None or not self._silence.is_too_long:
            return False
        self._leave(self._running, lambda running: running.end())
        self._fail(f"no answer for {LONGEST_SILENCE:.0f} s")
        return True

    def _leave(self, running: RunningCommand, end: Callable[[RunningCommand], object]) -> None:
        self.spare()
        self._running = None
        with running:
            end(running)

    def _end_push(self, running: RunningCommand) -> None:
        if (completed := running.wait()).status == 0:
            _note(self._git, self._remote, self.view.acknowledge())
            self.schedule.take_push()
            self.schedule.succeed(with_work=self._with_work)
            log.event("mirror.pushed", remote=self._remote, sequence=self._claim.sequence)
        else:
            self.view.note_failure(is_refused=is_refused(completed))
            self._fail(push_error(completed), look=True)

    def _end_look(self, running: RunningCommand) -> None:
        if (completed := running.wait()).status != 0:
            self._fail(push_error(completed))
            return
        was_lost = self.view.is_lost
        standing = self.view.compare(fetched(list_refs(self._git, everything(self._remote)), self._remote))
        settle = self.schedule.succeed if self.view.was_taken else self.schedule.refuse
        settle(with_work=self._with_work)
        if standing is ClaimState.LOST and not was_lost:
            self.schedule.start_again()
            self._messages.fenced(self._claim.id, self._claim.session)
            self._fence()
        for ref in self.view.diverted:
            self._messages.diverted(ref, self._claim.id)

    def _fail(self, reason: str, *, look: bool = False) -> None:
        self.schedule.fail(reason, look=look)
        self._messages.failed(reason)

    @property
    def is_complete(self) -> bool:
        """Whether the remote has all that the session has pushed."""
        return not (self.schedule.is_failing or self.schedule.reason or self.view.in_doubt)

    def give_up(self) -> None:
        """End the running command, and say what the remote lacks."""
        if self._running is not None:
            self._leave(self._running, lambda running: running.end())
            self.schedule.fail(self.schedule.reason or "there was no time for it", look=False)
        missing = self.view.missing(self.view.wanted(list_refs(self._git, *self.view.patterns), self.work))
        if missing or not self.is_complete:
            self._messages.incomplete(missing, self.schedule.reason or self._lacks())
        elif self.submodules.lacking:
            self._messages.without_submodules(self.submodules.lacking)

    def _lacks(self) -> str:
        """Return why the remote lacks work after a push of everything; empty if it lacks none."""
        return "; ".join(filter(None, (self._lacking, *self.submodules.lacking)))


def _note(git: Git, remote: str, after: Mapping[str, str | None]) -> None:
    """Note what the remote has now, for a later start that finds it unreachable."""
    try:
        set_refs(git, {tracking(remote, ref): oid for ref, oid in after.items()})
    except GitError as error:
        log.event("mirror.not_noted", reason=str(error))
