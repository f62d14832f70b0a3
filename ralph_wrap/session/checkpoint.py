"""Save the work of each iteration at its end: a commit or a snapshot, and a push."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from ralph_wrap.errors import GitError, RalphError
from ralph_wrap.git import Git, resolve_commit
from ralph_wrap.git.remote import push_addresses
from ralph_wrap.session.clone_end import CloneEnd
from ralph_wrap.session.context import SessionContext
from ralph_wrap.session.lost_snapshots import drop_lost
from ralph_wrap.session.own_files import OwnFiles
from ralph_wrap.session.remote.mirror import Mirror
from ralph_wrap.session.remote.push import BranchPush
from ralph_wrap.session.thin_snapshots import thin
from ralph_wrap.state.project import repository_of
from ralph_wrap.system.cancel import CancelToken, Interruption
from ralph_wrap.system.disk import first_full
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.process_tree import ProcessTree
from ralph_wrap.system.text import readable_size
from ralph_wrap.worktree.create.replica import refresh
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.build_output import BuildOutput
from ralph_wrap.worktree.save.checkpoint import Snapshot, Snapshots, commit_all
from ralph_wrap.worktree.save.private_index import WorktreeState
from ralph_wrap.worktree.thinning import superseded

log = get_logger()

_ATTEMPTS = 3  # to take a snapshot between two commits of an agent
_SHORTEST_LIMIT = 5.0  # seconds for a look while an iteration runs, also if the beat is shorter
_MOST_UNKEPT = 3  # iterations in a row that a full disk does not take, before the loop waits for room
_THIN_EVERY = 10  # iterations
_KEYS = ("push", "commit_each")  # keys of the configuration that need a worktree


def _pushing(context: SessionContext, remote: str) -> Git:
    """Return git in the repository from which the session pushes: the replica, if it can write no other."""
    project, clone = context.project, context.clone_end
    common_dir = repository_of(project).common_dir
    git = project.git._replace(cwd=project.main, git_dir=common_dir)
    if clone is None or clone.is_writable:
        return git
    addresses = push_addresses(git, remote)
    config = [word for address in addresses for word in ("-c", f"remote.{remote}.pushurl={address}")]
    return context.keeping.git._replace(config=tuple(config))


class Checkpoint:
    """Saves the uncommitted work of each iteration, and pushes the commits.

    Arguments:
        context: of the session.
        tree: its worktree; without one nothing is saved, because the project root belongs to the user.
        process_tree: the processes that the agent has started; our pushes are not among them.
        own_files: of the session; its index is one of them.
        mirror: keeps the session on a remote; ``None`` without one.

    Attributes:
        interruption: ends a look at the worktree early: the end of the session saves the work anyway.

    """

    def __init__(
        self,
        context: SessionContext,
        tree: LinkedWorktree | None,
        process_tree: ProcessTree,
        own_files: OwnFiles,
        mirror: Mirror | None = None,
    ) -> None:
        self._tree = tree
        self._git = context.keeping.git
        self._own_files = own_files
        self._state: WorktreeState | None = None  # at the last look; ``None`` if that is too long ago
        self._snapshots = None
        self.interruption = Interruption(context.cancel)
        if tree is not None:
            self._snapshots = Snapshots(
                tree,
                self._git._replace(cancel=self.interruption),
                own_files.directory,
                agent_id=context.record.id,
                session=context.record.session,
            )
        self._mirror = mirror
        if mirror is not None:
            mirror.spare = process_tree.spare
        self._work: str | None = None  # the ref of the newest snapshot; empty if nothing is uncommitted
        self._has_warned = False  # about many new files
        self._lacking = ""  # why the snapshot lacks work
        self._failure = ""  # why the last snapshot failed: a reason that stays is said once
        self._unkept = 0  # iterations in a row that could not be kept, because a disk is full
        self._cancel = context.cancel
        self._longest_look = max(context.settings.remote_beat, _SHORTEST_LIMIT)
        self._at_beat: WorktreeState | None = None  # the state of the worktree at the last beat
        self._record = context.record
        self._commits = context.settings.commit_each
        if self._commits and tree is not None and tree.clone:
            self._commits = False  # nothing of ours writes into the repository of an agent
            log.warning(
                "handover.ignored", "no effect: commit_each; in a clone each iteration leaves a snapshot"
            )
        self._push = None
        self._clone = context.clone_end
        if tree is None and (wanted := [key for key in _KEYS if getattr(context.settings, key)]):
            log.warning(
                "handover.ignored", f"no effect: {', '.join(wanted)}; there is no worktree of our own"
            )
        if tree is not None and context.settings.push is not None:
            self._push = BranchPush(
                _pushing(context, context.settings.push),
                context.settings.push,
                tree.branch,
                tree.base,
                is_own=tree.branch_created,
                spare=process_tree.spare,
            )

    def look(self) -> str:
        """Look at the worktree.

        Returns:
            A text that differs between states; empty if the state is unknown, or if a signal came.

        """
        self._state = None
        try:
            self._state = self._look()
        except (GitError, OSError):
            return ""
        return self._state.text if self._state else ""

    def _look(self) -> WorktreeState | None:
        if self._tree is None or self._snapshots is None:
            return None
        self._own_files.restore()
        refresh(self._tree, self._git)
        return self._snapshots.look()

    def after(self, number: int, state: str, ended: bool) -> str:
        """Save the work of an iteration as far as possible; a failure does not end the loop.

        Arguments:
            state: what :meth:`look` has returned since the end of the iteration; empty if nobody has looked.
            ended: the iteration will not be repeated.

        Returns:
            The new state of the worktree, empty if it is unchanged or unknown.

        """
        if self._tree is None or self._snapshots is None:
            return ""
        if not state:
            self._state = None
        state = self._keep(self._tree, self._snapshots, number, state, ended=ended)
        if self._clone is not None:
            self._bring_out(self._clone, number)
        if self._push is not None:
            self._start_push(self._push)
        if self._mirror is not None:
            self._mirror.submodules.look(self._tree, self._git)
            self._mirror.go_on(number, self._work, self._lacking, now=True)
        return state

    def without_room(self) -> Path | None:
        """Return the directory whose disk is full, if no iteration could be kept for too long."""
        return self._full_directory() if self._unkept >= _MOST_UNKEPT else None

    def _full_directory(self) -> Path | None:
        """Return the first directory in which a snapshot has no room."""
        tree = self._tree
        return first_full((tree.common_dir, tree.registration)) if tree else None

    def beat(self, number: int, must_end: Callable[[], bool] = lambda: False) -> float:
        """Push the branch again, or mirror the session, while an iteration runs, if that is due.

        A look at many files takes seconds. It ends early when something else is due, and after the time of a
        beat. Then the remote gets the claim without new work: other machines see that the session lives.

        Arguments:
            number: of the iteration.
            must_end: returns true when the loop has something else to do.

        Returns:
            When to call this again, as :func:`time.monotonic` counts.

        """
        mirror, tree = self._mirror, self._tree
        if self._cancel.requested:
            return math.inf  # after a signal nothing waits for us: the end pushes everything
        if self._push is not None and time.monotonic() >= self._push.wakes:
            self._start_push(self._push)
        wakes = math.inf if self._push is None else self._push.wakes
        if mirror is None or tree is None:
            return wakes
        if time.monotonic() >= mirror.wakes:
            if time.monotonic() >= mirror.schedule.due:
                latest = time.monotonic() + self._longest_look
                with self.interruption.when(lambda: must_end() or time.monotonic() >= latest):
                    self._snapshot_while_running(tree, number)
            mirror.go_on(number, self._work, self._lacking)
        return min(wakes, mirror.wakes)

    def _start_push(self, push: BranchPush) -> None:
        try:
            push.start()
        except (GitError, OSError) as error:
            log.warning("push.failed", f"the branch was not pushed: {error}")

    def _snapshot_while_running(self, tree: LinkedWorktree, number: int) -> None:
        self._snapshot_if_changed(tree, number)
        if self._clone is not None:
            self._bring_out(self._clone, number)

    def _refresh(self, tree: LinkedWorktree, number: int) -> bool:
        try:
            refresh(tree, self._git)
        except (GitError, OSError) as error:
            log.warning("snapshot.failed", f"no snapshot of iteration {number}: {error}")
            self._count_unkept()
            return False
        return True

    def _count_unkept(self) -> None:
        self._unkept = self._unkept + 1 if self._full_directory() else 0

    def _bring_out(self, clone: CloneEnd, number: int) -> None:
        try:
            clone.go_on(take_in=self._push is not None or self._mirror is not None)
        except (RalphError, OSError) as error:
            log.warning("bundle.failed", f"no bundle of iteration {number}: {error}")

    def look_into_submodules(self) -> None:
        """Look for work in submodules that the remote lacks, before the worktree goes."""
        tree, mirror = self._tree, self._mirror
        if tree and mirror and (self._clone is None or self._refresh(tree, self._record.iteration)):
            mirror.submodules.look(tree, self._git)

    def finish(self, cancel: CancelToken) -> None:
        """Push the commits that are not pushed yet, as :meth:`BranchPush.finish` does."""
        if self._push is not None:
            self._push.finish(cancel)

    def _keep(
        self, tree: LinkedWorktree, snapshots: Snapshots, number: int, text: str, *, ended: bool
    ) -> str:
        state, self._state = self._state, None
        if self._commits and ended and not (state and state.is_clean) and self._commit(tree, number):
            state = None
        try:
            state = state or self._look()
            assert state is not None  # there is a worktree
            self._warn_about(state.build_output, number)
            kept = snapshots.take(state, number)
        except (GitError, OSError) as error:
            if not self.interruption.requested:  # the end of the session saves the work
                self._log_failure(number, error)
            return ""
        self._failure, self._unkept = "", 0
        if snapshots.may_be_lost():
            drop_lost(tree, self._git, self._record.id, kept.head)
        self._work, self._lacking = kept.ref or "", "; ".join(kept.problems)
        log.event("iteration.kept", iteration=number, head=kept.head, snapshot=kept.ref)
        if problems := [*kept.problems, *kept.in_submodules]:
            log.event("snapshot.incomplete", iteration=number, problems=problems)
        if kept.ref is not None and number % _THIN_EVERY == 0 and not tree.clone:
            thin(tree, self._git, self._record, superseded)
        return "" if state.text == text else state.text

    def _warn_about(self, output: BuildOutput | None, number: int) -> None:
        """Warn once about many new files: each snapshot has them, and so has the saved work."""
        if output is None or self._has_warned:
            return
        self._has_warned = True
        places = f": most of them in {', '.join(output.places)}" if output.places else ""
        rules = " and ".join(output.rules)
        log.warning(
            "snapshot.large",
            f"iteration {number} has made {output.files} new files, {readable_size(output.size)}, that git "
            f"does not ignore, so each snapshot holds them{places}",
            f"to leave them out, write into .gitignore: {rules}" if rules else "",
            files=output.files,
            size=output.size,
            places=output.places,
        )

    def _log_failure(self, number: int, error: GitError | OSError) -> None:
        if str(error) == self._failure:
            log.event("snapshot.failed", iteration=number, reason=str(error))
        else:
            log.warning(
                "snapshot.failed", f"no snapshot of the uncommitted work of iteration {number}: {error}"
            )
        self._lacking, self._failure = f"no snapshot of iteration {number}: {error}", str(error)
        self._count_unkept()

    def _commit(self, tree: LinkedWorktree, number: int) -> bool:
        message = f"Iteration {number}\n\nCommitted at its end, in session {self._record.session}.\n"
        try:
            return commit_all(tree, self._git, message)
        except (GitError, OSError) as error:
            log.warning("iteration.not_committed", f"iteration {number} is not committed: {error}")
        return False

    def _snapshot_if_changed(self, tree: LinkedWorktree, number: int) -> None:
        """Keep the uncommitted work in the middle of an iteration; the agent may write meanwhile.

        A signal ends this, or what else is due: the end of the iteration saves the work.
        """
        try:
            state, kept = self._take_consistent(tree, number)
            if kept is None:
                return
            if self._mirror is not None:
                self._mirror.submodules.look(tree, self._git._replace(cancel=self.interruption))
        except (GitError, OSError) as error:  # the next beat tries again
            log.event("snapshot.failed", iteration=number, reason=str(error))
            self._lacking = f"no snapshot of iteration {number}: {error}"
            return
        self._at_beat, self._work, self._lacking = state, kept.ref or "", "; ".join(kept.problems)

    def _take_consistent(
        self, tree: LinkedWorktree, number: int
    ) -> tuple[WorktreeState | None, Snapshot | None]:
        """Take a snapshot, and again if the agent has committed meanwhile: then its parent is not its base.

        Returns:
            The state, and its snapshot; ``None`` if nothing has changed since the last beat.

        """
        assert self._snapshots is not None
        state = kept = None
        for _ in range(_ATTEMPTS):
            state = self._look()
            assert state is not None
            if self._at_beat is not None and state.has_same_work(self._at_beat):
                return state, None
            kept = self._snapshots.take(state, number)
            if resolve_commit(tree.git(self._git), "HEAD") == kept.head:
                break
        return state, kept
