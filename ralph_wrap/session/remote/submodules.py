"""The work in submodules on the remote of a session: one commit, left out if the remote refuses it."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from ralph_wrap.errors import RalphError
from ralph_wrap.git import decode_lines, run_git
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.worktree.save.inspect import has_submodules
from ralph_wrap.worktree.save.submodule_snapshot.make import read_snapshot, ref_of, snapshot_submodules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralph_wrap.git import Git
    from ralph_wrap.session.remote.view import RemoteView
    from ralph_wrap.worktree.model import LinkedWorktree

_AFTER_TERM = 2.0
"""Seconds to copy work after a SIGTERM: all other work comes later, and ``docker stop`` kills after 10."""

_FIRST_WAIT = 60.0
"""Seconds without the snapshot after a push of it that got no answer; each next time it is twice that."""


class _TimeToCopy(CancelToken):
    """Ends a copy a while after a SIGTERM, and at a second signal.

    Arguments:
        signals: the signals so far.

    """

    def __init__(self, signals: CancelToken) -> None:
        super().__init__()
        self._signals = signals
        self._limit: float | None = None

    @property
    def requested(self) -> bool:
        """Whether the time is over."""
        if self._limit is None and self._signals.terms:
            self._limit = time.monotonic() + _AFTER_TERM
        return self._signals.hurried or (self._limit is not None and time.monotonic() >= self._limit)


class MirroredSubmodules:
    """The submodule snapshot of one session.

    A push brings all, or nothing. A remote can refuse the history of a submodule that it takes a session's
    other work of: for its size, or for an old commit. So after a refusal the session pushes without it, and
    without other refs that would bring commits of this history.

    Arguments:
        git: at the repository of the project.
        agent_id: of the session.
        session: its session id.
        cancel: the signals so far.

    Attributes:
        is_refused: the remote has answered that it does not take the last push; otherwise a failure may pass.
        comes_last: if the remote has none yet, the next push is without it: it can be large, and time short.

    """

    def __init__(self, git: Git, agent_id: str, session: str, cancel: CancelToken) -> None:
        self._git = git
        self._time = _TimeToCopy(cancel)
        self._agent_id = agent_id
        self._session = session
        self._ref = ref_of(agent_id)
        self._problems: tuple[str, ...] = ()
        self._pushing = ""  # the snapshot that the last push was to bring
        self._refused = ""  # the snapshot that the remote has refused
        self._refusal = ""
        self._left_out = ""  # why the last push had another snapshot than the newest one
        self._wait, self._again = _FIRST_WAIT, 0.0  # seconds, and when to try the refused one again
        self.is_refused = False
        self.comes_last = False

    def keep(self, tree: LinkedWorktree, git: Git) -> None:
        """Make the snapshot, as far as possible.

        Arguments:
            tree: the worktree of the session.
            git: git at the repository that has its registration.

        """
        if not has_submodules(tree):
            return  # what an earlier session has left stays
        git = git._replace(cancel=git.cancel or self._time)
        try:
            self._problems = snapshot_submodules(
                tree, git, self._git, agent_id=self._agent_id, session=self._session
            )
        except (RalphError, OSError) as error:
            self._problems = (f"the work in submodules: {error}",)

    def lacking(self, other: str) -> str:
        """Return why the remote lacks work, in submodules or other work; empty if it lacks none."""
        return "; ".join(filter(None, (other, *self._problems, self._left_out)))

    @property
    def is_to_come(self) -> bool:
        """Whether the last push was without it because it comes last."""
        return self.comes_last and bool(self._left_out)

    def chosen(self, wanted: Mapping[str, str], view: RemoteView) -> dict[str, str]:
        """Return the refs to push: perhaps without the newest snapshot.

        Arguments:
            wanted: the refs that the remote is to have.
            view: what it has.

        """
        snapshot, earlier = wanted.get(self._ref, ""), view.on_remote(self._ref)
        reason = ""
        if snapshot and snapshot == earlier:
            self._wait = _FIRST_WAIT
        if snapshot and snapshot == self._refused and time.monotonic() < self._again:
            reason = self._refusal
        elif snapshot and self.comes_last and earlier is None:
            reason = "it comes with the next push"
        if not reason:
            self._pushing = "" if snapshot == earlier else snapshot
            self._left_out = ""
            return dict(wanted)
        self._pushing = ""
        paths = ", ".join(work.path or work.name for work in read_snapshot(self._git, snapshot))
        self._left_out = f"{self._ref} with the work in {paths}: {reason}"
        left = {self._ref, *self._with_that_history(wanted, snapshot)}
        earlier_ones = {ref: oid for ref in left if (oid := view.on_remote(ref)) is not None}
        return {ref: oid for ref, oid in wanted.items() if ref not in left} | earlier_ones

    def _with_that_history(self, wanted: Mapping[str, str], snapshot: str) -> list[str]:
        """Return the refs of single commits that would bring commits that only the snapshot has, too."""
        prefix = f"{self._ref.removesuffix('submodules')}commit-"
        kept = [f"^{oid}" for ref, oid in wanted.items() if ref != self._ref and not ref.startswith(prefix)]
        history = self._commits(snapshot, kept)
        return [
            ref
            for ref, oid in wanted.items()
            if ref.startswith(prefix) and not history.isdisjoint(self._commits(oid, kept))
        ]

    def _commits(self, tip: str, without: Sequence[str]) -> set[str]:
        stdin = "".join(f"{oid}\n" for oid in (tip, *without)).encode()
        return {*decode_lines(run_git(self._git, "rev-list", "--stdin", stdin=stdin).stdout)}

    def refuse(self, reason: str) -> None:
        """Note that the remote has not taken the last push.

        Arguments:
            reason: why.

        """
        self._refused = self._pushing  # if it was not in that push, the remote refuses something else
        self._refusal = reason
        if self._refused:
            self._again = math.inf if self.is_refused else time.monotonic() + self._wait
            self._wait *= 2

    def try_again(self) -> None:
        """Push the snapshot again, although the remote has refused it."""
        self._refused = ""
