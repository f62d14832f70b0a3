"""The end of a session on its remote: all of it, within the time that is left."""

from __future__ import annotations

import time
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.session.context import SessionContext
from ralph_wrap.session.ending import SessionState
from ralph_wrap.session.remote.mirror import Mirror
from ralph_wrap.state.record import SessionRecord
from ralph_wrap.system.log import current
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.checkpoint import snapshot as take_snapshot

_LOOK = 0.2  # seconds between two looks at a running command
_LONGEST_PAUSE = 15.0  # seconds between two attempts
_LONGEST_WAIT = 600.0  # seconds between two pushes of work that the remote refuses


class MirrorEnd(NamedTuple):
    """The end of a session on its remote.

    Attributes:
        mirror: of the session.
        state: what has happened in it.
        context: of the session. Of its signals, a SIGTERM shortens the time, and a second signal ends it.

    """

    mirror: Mirror
    state: SessionState
    context: SessionContext

    def push(self, record: SessionRecord) -> None:
        """Push the end; without any work of an agent, withdraw the claim.

        Arguments:
            record: of the session, as it is now.

        """
        state, mirror, cancel = self.state, self.mirror, self.context.cancel
        tree = state.workspace.tree if state.workspace else None
        if record.resumes is None and not (tree and state.agent_started):
            mirror.withdraw()
            return
        ended_by = state.result.ended_by if state.result else "signal" if cancel.requested else "error"
        work, lacking = self._rest(tree, record) if tree else (None, "")
        mirror.end(record.iteration, ended_by, work, lacking)
        deadline = time.monotonic() + self.context.settings.patience
        try:
            self._await(deadline)
            self._insist(deadline)
        finally:
            current().progress("")
            mirror.give_up()

    def _rest(self, tree: LinkedWorktree, record: SessionRecord) -> tuple[str | None, str]:
        """Keep the work that is on no branch, because the worktree stays as it is.

        Returns:
            The ref of the uncommitted work, as :meth:`Mirror.end` takes it, and why the refs of the session
            lack some of its work.

        """
        saved = self.state.outcome.saved if self.state.outcome else None
        work = saved.ref if saved else None
        if saved is not None and not saved.problems:
            # Work that was put back for an agent that did not start is where it was.
            return work if work or not self.state.agent_started else "", ""
        git = self.context.keeping.git
        number = record.iteration
        try:
            kept = take_snapshot(tree, git, agent_id=record.id, session=record.session, number=number)
        except (GitError, OSError) as error:
            return work, f"some work is only in its worktree: {error}"
        return kept.ref or work or "", "; ".join(kept.problems)

    def _insist(self, deadline: float) -> None:
        """Push all until the remote has it; while it refuses the work, in growing waits.

        The claim goes alone after each refusal, and meanwhile. It says that the remote lacks work, and it
        moves, so another machine sees that this one still has that work.
        """
        schedule = self.mirror.schedule
        longest = min(_LONGEST_PAUSE, self.context.settings.remote_beat)
        pause, wait, again, only_claim = _LOOK, _LOOK, 0.0, False
        while not self._is_over(deadline):
            troubles = schedule.troubles
            looks = self.mirror.view.in_doubt  # the remote may have an earlier push, which lacks the end
            self.mirror.attempt(whole=not only_claim)
            self._await(deadline)
            if self.mirror.is_complete and not looks:
                return
            is_refused = schedule.is_refused and not self.mirror.view.in_doubt
            is_in_trouble, was_claim = schedule.troubles > troubles, only_claim
            if is_in_trouble and is_refused:
                again, wait = time.monotonic() + wait, min(wait * 2, _LONGEST_WAIT)
            only_claim = is_refused and (not was_claim or time.monotonic() < again)
            if is_in_trouble or (was_claim and only_claim):
                only_claim &= self._sleep(min(pause, deadline - time.monotonic()))
                pause = min(pause * 2, longest)

    def _await(self, deadline: float) -> None:
        """Wait for the running command."""
        while not self.mirror.has_ended(_LOOK) and not self._is_over(deadline):
            current().progress(f"push: {self.mirror.view.branch_ref}")

    def _sleep(self, seconds: float) -> bool:
        """Wait, and return whether no signal has ended the wait: the remote may be back."""
        cancel = self.context.cancel
        end, terms = time.monotonic() + seconds, cancel.terms
        while time.monotonic() < end and cancel.terms == terms and not cancel.hurried:
            time.sleep(_LOOK)
        return cancel.terms == terms

    def _is_over(self, deadline: float) -> bool:
        settings, cancel = self.context.settings, self.context.cancel
        less = max(0.0, settings.patience - settings.patience_at_term) if cancel.terms else 0.0
        return cancel.hurried or time.monotonic() >= deadline - less
