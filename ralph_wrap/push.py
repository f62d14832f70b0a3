"""Push a session's branch to a remote while the loop goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap import git

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph_wrap.git import Git
    from ralph_wrap.log import Log
    from ralph_wrap.process import Running

_PATIENCE = 30.0  # seconds for the last push, at the end of the session
_LOOK = 0.1  # seconds between two looks at whether somebody is in a hurry


class Push:
    """Has a branch on a remote follow the one here, one push at a time; nobody waits for any but the last.

    A branch of the session's own may be rewritten by its agent, so it is replaced there, but only what this
    session itself has pushed: what anybody else has put there stays. Any other branch only moves forward.

    Arguments:
        where: git at the repository.
        remote: its name.
        branch: short name of the branch.
        base: where the branch began; nothing is pushed before it has moved on.
        own: the session has made it.
        spare: called with the pids of the processes here that are not the agent's.
        told: told of what was pushed, and of what could not be.

    """

    def __init__(
        self,
        where: Git,
        remote: str,
        branch: str,
        base: str,
        *,
        own: bool,
        spare: Callable[..., None],
        told: Log,
    ) -> None:
        self._where = where
        self._remote = remote
        self._branch = branch
        self._own = own
        self._spare = spare
        self._told = told
        self._there = ""  # what this session has pushed
        self._tried = base
        self._running: Running | None = None

    def start(self) -> None:
        """Push what the branch holds now, unless it is there already or a push is still under way.

        Raises:
            GitError: the branch cannot be read.
            OSError: git cannot be run.

        """
        if self._running is not None and not self._has_ended(self._running, 0):
            return
        ref = f"refs/heads/{self._branch}"
        tip = git.refs(self._where, ref).get(ref)
        if tip is None or tip == self._tried:
            return
        self._tried = tip
        self._running = git.start_push(
            self._where, self._remote, tip, ref, replaced=self._there if self._own else None
        )
        self._spare(self._running.pid)

    def finish(self, hurry: Callable[[], bool]) -> None:
        """Push what is not there yet, and wait until that is done.

        Arguments:
            hurry: asked again and again; whoever is in a hurry does not wait.

        Raises:
            GitError: the branch cannot be read.
            OSError: git cannot be run.

        """
        try:
            if self._await(hurry):
                self.start()
                self._await(hurry)
        finally:
            if self._running is not None:
                self._running.end()
                self._running = None
                self._spare()
                self._fail("there was no time for it")

    def _await(self, hurry: Callable[[], bool]) -> bool:
        """Wait for the push that is under way; tell whether none is any more."""
        for _ in range(round(_PATIENCE / _LOOK)):
            if self._running is None:
                return not hurry()
            if not self._has_ended(self._running, _LOOK) and hurry():
                break
        return self._running is None

    def _has_ended(self, running: Running, timeout: float) -> bool:
        if not running.ended(timeout):
            return False
        self._spare()
        self._running = None
        completed = running.wait()
        if completed.status == 0:
            self._there = self._tried
            self._told.event("branch.pushed", remote=self._remote, branch=self._branch, commit=self._tried)
        else:
            self._fail(git.push_error(completed))
        return True

    def _fail(self, reason: str) -> None:
        self._told.warning(
            "push.failed",
            f"{self._branch} was not pushed to {self._remote}: {reason}",
            f"git push {self._remote} {self._branch}",
        )
