"""Push a session's branch to a remote while the loop runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ralph_wrap.git import Git, count_commits, list_refs
from ralph_wrap.git.remote import Silence, push_error, start_push
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.log import current, get_logger
from ralph_wrap.system.process import RunningCommand
from ralph_wrap.system.text import command

log = get_logger()

LONGEST_SILENCE = 600.0
"""Seconds of silence after which a push, or a fetch of a mirror, counts as stuck: the remote is gone."""

_FIRST_WAIT = 60.0  # seconds between a failure and the next attempt; each next wait is twice as long
_LONGEST_WAIT = 600.0  # seconds
_PATIENCE = 30.0  # seconds for the last push at the end of the session
_LOOK = 0.1  # seconds between two checks for a second signal
_GLANCE = 0.01  # seconds; with 0 Popen.communicate never notices the end of a command


class BranchPush:
    """Pushes the local branch to a remote, one push at a time; the session waits only for the last push.

    The agent may rewrite a branch that the session created. Then the push replaces the remote branch, but
    only commits that this session pushed. Commits of other users stay. Any other branch is only
    fast-forwarded.

    Arguments:
        remote: name of the remote.
        branch: short name of the branch.
        base: the commit that the branch started from; the first push needs a newer commit.
        is_own: the session created the branch.
        spare: called with the pids of our processes, which do not belong to the agent.

    """

    def __init__(
        self,
        git: Git,
        remote: str,
        branch: str,
        base: str,
        *,
        is_own: bool,
        spare: Callable[..., None],
    ) -> None:
        self._git = git
        self._remote = remote
        self._branch = branch
        self._is_own = is_own
        self._spare = spare
        self._pushed = ""  # the commit that this session has pushed
        self._base = base
        self._tried = base
        self._running: RunningCommand | None = None
        self._silence: Silence | None = None
        self._failures = 0
        self.wakes = math.inf
        """When :meth:`start` has something to do although there is no new commit (:func:`time.monotonic`)."""

    def start(self) -> None:
        """Push the branch, unless it is pushed already or a push is still running.

        A push that is stuck is ended. After a failure the next attempt comes with a new commit, or after a
        while.

        Raises:
            GitError: the branch cannot be read.
            OSError: git cannot be run.

        """
        if self._running is not None and not self._has_ended(self._running, _GLANCE):
            if time.monotonic() < self.wakes:
                return
            if self._silence is not None and not self._silence.is_too_long:
                self.wakes = time.monotonic() + LONGEST_SILENCE
                return
            self._give_up(f"no answer for {LONGEST_SILENCE:.0f} s")
        if self._failures and time.monotonic() >= self.wakes:
            self._tried = self._pushed or self._base
            self.wakes = math.inf
        ref = f"refs/heads/{self._branch}"
        tip = list_refs(self._git, ref).get(ref)
        if tip is None or tip == self._tried:
            return
        rewritten = bool(self._pushed) and count_commits(self._git, tip, self._pushed) != 0
        replaced = self._pushed if self._is_own and rewritten else None
        self._running = start_push(self._git, self._remote, tip, ref, replaced=replaced)
        self._tried = tip
        self._silence = Silence(self._running, LONGEST_SILENCE)
        self.wakes = time.monotonic() + LONGEST_SILENCE
        self._spare(self._running.pid)

    def finish(self, cancel: CancelToken) -> None:
        """Push the last commits, also after a failed push, and wait for the end of the push.

        Arguments:
            cancel: a SIGTERM, or a second signal, ends the wait.

        Raises:
            GitError: the branch cannot be read.
            OSError: git cannot be run.

        """
        deadline = time.monotonic() + _PATIENCE
        if self._running is None:
            self._tried = self._pushed or self._base  # try again: the network may work now
        try:
            self._await(deadline, cancel)
            if self._running is None and not _is_hurried(cancel):
                self.start()
                self._await(deadline, cancel)
        finally:
            current().progress("")
            self._give_up("there was no time for it")

    def _give_up(self, reason: str) -> None:
        """End the running push, if there is one."""
        if self._running is not None:
            with self._running as running:
                running.end()
            self._running = None
            self._spare()
            self._fail(reason)

    def _await(self, deadline: float, cancel: CancelToken) -> None:
        """Wait for the running push."""
        while self._running is not None and not self._has_ended(self._running, _LOOK):
            if _is_hurried(cancel) or time.monotonic() >= deadline:
                return
            current().progress(f"push: {self._branch} to {self._remote}")

    def _has_ended(self, running: RunningCommand, timeout: float) -> bool:
        if not running.ended(timeout):
            return False
        self._spare()
        self._running = None
        with running:
            completed = running.wait()
        if completed.status == 0:
            self._pushed = self._tried
            self._failures, self.wakes = 0, math.inf
            log.event("branch.pushed", remote=self._remote, branch=self._branch, commit=self._tried)
        else:
            self._fail(push_error(completed))
        return True

    def _fail(self, reason: str) -> None:
        self.wakes = time.monotonic() + min(_FIRST_WAIT * 2 ** min(self._failures, 10), _LONGEST_WAIT)
        self._failures += 1
        log.warning(
            "push.failed",
            f"{self._branch} was not pushed to {self._remote}: {reason}",
            command("git", "push", self._remote, self._branch),
        )


def _is_hurried(cancel: CancelToken) -> bool:
    """Return whether a push may not be waited for: PID 1 counts the time, or the user has asked twice."""
    return cancel.terms > 0 or cancel.hurried
