"""The end of a session's worktree and branch: saved, then removed or kept, and logged."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.config import OnDirty, WorktreeSettings
from ralph_wrap.errors import TO_SEE_DAMAGE
from ralph_wrap.git import list_refs, pointer
from ralph_wrap.session.lost_snapshots import drop_lost
from ralph_wrap.state.project import Project
from ralph_wrap.state.registry import SessionRecord
from ralph_wrap.system.cancel import NEVER, CancelToken
from ralph_wrap.system.log import Commands, get_logger
from ralph_wrap.system.text import command
from ralph_wrap.worktree.git_file import GitFileChange, mend_git_file
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.recover import finish_deleted, is_deleted
from ralph_wrap.worktree.remove import WorktreeOutcome, drop_branch, finish
from ralph_wrap.worktree.save.one_tree import last_snapshot
from ralph_wrap.worktree.save.result import SavedWork, SaveRequest
from ralph_wrap.worktree.stale_locks import remove_stale_locks
from ralph_wrap.worktree.way_out import way_out

log = get_logger()


class WorktreePolicy(NamedTuple):
    """What the user wants for a session's worktree at the end; by default, it is saved and removed.

    Attributes:
        keep: the worktree stays as it is, unsaved.
        on_dirty: whether uncommitted work is saved, or keeps the worktree.
        background: the worktree stays, saved, until ``ralph-wrap rm``.

    """

    keep: bool = False
    on_dirty: OnDirty = OnDirty.WIP
    background: bool = False

    @classmethod
    def of_settings(cls, settings: WorktreeSettings) -> WorktreePolicy:
        """Return what the settings of a session say."""
        return cls(settings.keep_worktree, settings.on_dirty, settings.background)

    @classmethod
    def of_record(cls, record: SessionRecord) -> WorktreePolicy:
        """Return what the record of a session says, which its settings wrote."""
        return cls(record.keep_worktree, OnDirty(record.on_dirty), record.background)


TO_SWEEP = "ralph-wrap sweep"
"""The way out of a session whose worktree a later sweep saves."""


def try_again_hint(root: Path, outcome: WorktreeOutcome, again: str = TO_SWEEP) -> str:
    """Return what helps if objects of a worktree are damaged, or the disk is full; empty for no such reason.

    Arguments:
        again: the command that saves it afterwards.

    """
    if outcome.saved and outcome.saved.damage:
        looking = command("git", "-C", root, *TO_SEE_DAMAGE.split()[1:])
        return Commands.of(
            f"to see everything that is damaged: {looking}",
            f"copy the objects from another clone or a backup, then: {again}",
        )
    if outcome.full:
        return f"to see which disk is full: {command('df', '-h', outcome.full)}; when there is room: {again}"
    return ""


def _try_again(outcome: WorktreeOutcome) -> str | None:
    """Return the command that tries again to save a worktree with damaged objects, or after a full disk."""
    damaged = outcome.later and outcome.saved is not None and outcome.saved.damage
    return TO_SWEEP if damaged or outcome.full else None


def _do_not_reuse(_directory: Path, _ignored: Collection[str]) -> None:
    """Leave nothing to a later worktree."""


class WorktreeEnd(NamedTuple):
    """Saves and removes the worktree of one session.

    Attributes:
        project: the project, with git as the session's own.
        record: of the session.
        policy: what the user wants.
        reuse: takes directories of the removed worktree for a later one; see ``worktree.remove.finish``.
        is_rm: ``ralph-wrap rm`` asks for it, so no hint names that command again.

    """

    project: Project
    record: SessionRecord
    policy: WorktreePolicy
    reuse: Callable[[Path, Collection[str]], None] = _do_not_reuse
    is_rm: bool = False

    def mend(self, tree: LinkedWorktree) -> bool:
        """Repair what an agent has broken in its worktree, log that, and return whether git works there."""
        self._clear_locks(tree)
        try:
            change = mend_git_file(tree)
        except OSError as error:
            change = GitFileChange(f"{tree.path}/.git cannot be written back: {error.strerror}", mended=False)
        if change is None:
            return True
        if change.mended:
            log.warning(
                "worktree.mended",
                f"{change.found}: ralph-wrap has written it back",
                "until now, git found no repository in the worktree, or another one",
                path=os.fspath(tree.path),
            )
            return True
        gone = not os.path.lexists(tree.path)
        log.warning(
            "worktree.gone" if gone else "worktree.replaced",
            f"the worktree {tree.path} was deleted"
            if gone
            else f"{change.found}: what an agent commits there is not on {tree.branch}",
            path=os.fspath(tree.path),
        )
        return False

    def leave(
        self,
        tree: LinkedWorktree,
        trash: Path,
        survivors: Sequence[int] = (),
        *,
        unstarted: bool = False,
        cancel: CancelToken = NEVER,
    ) -> WorktreeOutcome:
        """Save and remove the worktree, and log what became of it.

        Arguments:
            tree: the worktree.
            trash: the directory for removed worktrees.
            survivors: processes of the agent that could not be ended; the worktree stays for them.
            unstarted: no agent has worked in it.
            cancel: looked at after the save; without time, the removal is left to the next start.

        """
        if not survivors and is_deleted(tree):
            self._clear_locks(tree)
            return self._finish_deleted(tree)
        if not survivors:
            self.mend(tree)
        policy = self.policy
        keep = "it was asked for" if policy.keep else None
        if survivors:
            keep = f"processes of the agent still run: {', '.join(map(str, survivors))}"
        request = SaveRequest(
            self.record.id,
            self.record.session,
            commits_only=policy.on_dirty is OnDirty.KEEP,
            unstarted=unstarted,
            restored=self.record.restored,
            keeps_branch=unstarted and self.record.resumes is not None,
        )
        outcome = finish(
            tree,
            self.project.git,
            request,
            trash=trash,
            keep=keep,
            keep_saved=f"until ralph-wrap rm {self.record.id}" if policy.background else None,
            cancel=cancel,
            reuse=self.reuse,
        )
        if tree.clone and outcome.saved:
            outcome = outcome._replace(saved=self._as_taken_in(outcome.saved))
        if survivors:
            outcome = outcome._replace(asked=False)
        if outcome.kept:
            asked = outcome.asked and not survivors
            nested = outcome.saved.nested if outcome.saved else ()
            line = None if asked else way_out(tree, self.record.id, closed=outcome.closed, nested=nested)
            outcome = outcome._replace(way_out=line or _try_again(outcome))
        self.log_outcome(os.fspath(tree.path), outcome)
        if outcome.saved and not outcome.saved.damage:
            head = outcome.saved.head.commit if outcome.saved.head else None
            drop_lost(tree, self.project.git, self.record.id, head, at_end=self.project.root)
        return outcome

    def _clear_locks(self, tree: LinkedWorktree) -> None:
        for path in remove_stale_locks(tree, self.record.id):
            message = f"a git that was killed has left {path}, which is gone now"
            log.event("lock.removed", message, path=os.fspath(path))

    def _finish_deleted(self, tree: LinkedWorktree) -> WorktreeOutcome:
        """Save what git still knows of a worktree that somebody has deleted, and log what is lost."""
        outcome = finish_deleted(tree, self.project.git, self.record)
        outcome = outcome._replace(way_out=_try_again(outcome))
        self.log_outcome(os.fspath(tree.path), outcome)
        if outcome.kept:
            return outcome
        last = last_snapshot(self.project.git, SaveRequest(self.record.id, self.record.session))
        after = f", and came after the snapshot {last}" if last else ""
        lost = f"what was neither committed nor staged{after}"
        root = shlex.quote(os.fspath(self.project.main))
        saved = outcome.saved.branch if outcome.saved else None
        shown = last or saved or tree.branch
        log.warning(
            "worktree.deleted",
            f"nothing is at {tree.path}: lost with it is {lost}",
            f"to see what is saved: git -C {root} log -p {shlex.quote(shown)}",
            path=os.fspath(tree.path),
        )
        return outcome._replace(lost=lost)

    def _as_taken_in(self, saved: SavedWork) -> SavedWork:
        """Name the repository that gets the work of submodules with the bundle, not the replica."""
        store = pointer.common_dir_by_place(self.project.checkout)
        return saved._replace(inner=tuple(submodule._replace(store=store) for submodule in saved.inner))

    def log_outcome(self, path: str, outcome: WorktreeOutcome) -> None:
        """Log what became of a worktree."""
        saved = outcome.saved
        if saved and saved.branch:
            log.event("work.saved", branch=saved.branch, paths=list(saved.paths))
        if saved and saved.snapshots:
            log.event("commits.kept", refs=list(saved.snapshots))
        for submodule in saved.inner if saved else ():
            if submodule.refs:
                log.event(
                    "submodule.saved",
                    path=submodule.path,
                    repository=os.fspath(submodule.store),
                    refs=submodule.refs,
                )
        if outcome.later:
            hint = try_again_hint(self.project.root, outcome)
            log.warning("worktree.left", f"worktree left: {path} ({outcome.kept})", hint, path=path)
        elif outcome.kept:
            again = f"to save what can be saved, and remove it: ralph-wrap rm {self.record.id}"
            hint = try_again_hint(self.project.root, outcome) or outcome.way_out or again
            log.warning(
                "worktree.kept",
                f"worktree kept: {path} ({outcome.kept})",
                "" if self.is_rm else hint,
                path=path,
            )
        else:
            log.event("worktree.removed", path=path)

    def drop_branch(self, tree: LinkedWorktree, outcome: WorktreeOutcome) -> None:
        """Delete a branch without any work, and log it.

        A branch with snapshots of iterations stays: ``ralph-wrap drop`` finds them by the branch alone.
        """
        if list_refs(self.project.git, f"refs/ralph/snapshots/{self.record.id}/"):
            return
        if drop_branch(tree, self.project.git, outcome):
            log.event("branch.deleted", branch=tree.branch)
