"""Open the workspace of a session: create its worktree or, with a warning, use the plain project root."""

from __future__ import annotations

import os
from typing import NamedTuple

from ralph_wrap.config import Isolation, SubmoduleMode
from ralph_wrap.errors import (
    FIRST_COMMIT,
    GitTooOldError,
    IsolationError,
    NotARepositoryError,
    RalphError,
)
from ralph_wrap.git import Repository, read_head
from ralph_wrap.session import open_clone, plain_root
from ralph_wrap.session.context import SessionContext
from ralph_wrap.session.workspace import (
    Workspace,
    copy_ignored_files,
    log_created,
    monitor_leaks,
    new_worktree,
    put_back,
    restore_submodules,
)
from ralph_wrap.session.worktree_end import WorktreeEnd, WorktreePolicy
from ralph_wrap.state.project import RUN
from ralph_wrap.system.log import current, get_logger
from ralph_wrap.system.text import command
from ralph_wrap.worktree import restore
from ralph_wrap.worktree.create import submodules
from ralph_wrap.worktree.create.new_worktree import CheckoutWatch, OfferedWorktree
from ralph_wrap.worktree.create.transaction import create
from ralph_wrap.worktree.git_file import identity_of
from ralph_wrap.worktree.ignore import RULE, ensure_ignored
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save import sync
from ralph_wrap.worktree.warm import WarmWorktree

log = get_logger()


def open_workspace(context: SessionContext, obstacle: IsolationError | None) -> Workspace:
    """Create a worktree, or fall back to the plain project root if the settings allow it.

    Arguments:
        obstacle: reason why a worktree is impossible.

    Raises:
        IsolationError: isolation is required and impossible, or the user wants no session without it.
        UsageError: it is impossible, and the directory is no project.
        PlainRootBusyError: another session works in the plain project root.
        BranchBusyError: the requested branch is checked out elsewhere.
        StoppedError: a signal arrived.

    """
    if context.settings.isolation is Isolation.OFF:
        return plain_root.enter_plain_root(context, None)
    if context.settings.isolation is Isolation.CLONE:
        return open_clone.open_clone(context)
    try:
        if problem := context.project.obstacle or obstacle:
            raise problem
        return WorktreeOpening(context).open()
    except (IsolationError, NotARepositoryError, GitTooOldError) as error:
        if context.settings.isolation is Isolation.REQUIRE:
            raise IsolationError(f"isolation is required: {error.message}", error.hint) from error
        _require_consent(context, error)
        log.warning(
            "isolation.fell_back",
            f"no isolation: {error.message}; working in {context.project.checkout} itself",
            error.hint,
        )
        return plain_root.enter_plain_root(context, error.message)


def add_ignore_rule(context: SessionContext) -> None:
    """Hide the worktrees from the git of the project's checkout, unless the user hides them already."""
    around = context.project.around_worktrees
    if around is None or context.hidden:
        return
    changed = ensure_ignored(*around, context.settings.ignore)
    if changed is not None:
        log.event("ignore_rule.added", f"{RULE} added to {changed}", path=os.fspath(changed))


def _require_consent(context: SessionContext, reason: RalphError) -> None:
    """Check that the session may work without a worktree; a person on the terminal is asked.

    Raises:
        UsageError: the directory is no project.
        IsolationError: the answer is no.

    """
    plain_root.require_project(context.project)
    if context.agrees is None:
        return
    lines = [
        f"ralph-wrap: no isolation: {reason.message}",
        *([f"ralph-wrap: hint: {reason.hint}"] * bool(reason.hint)),
    ]
    if not context.agrees(lines, f"let the agent work in {context.project.checkout} itself?"):
        raise IsolationError(f"no isolation: {reason.message}", reason.hint) from reason


class WorktreeOpening(NamedTuple):
    """Creates the worktree of a session."""

    context: SessionContext

    def open(self) -> Workspace:
        """Create the worktree, and begin to watch what is outside it.

        Raises:
            IsolationError: the repository has no commit yet, or a worktree is impossible.
            BranchBusyError: the requested branch is checked out elsewhere.
            StoppedError: a signal arrived.

        """
        context = self.context
        repository = context.project.repository
        if repository is None or context.base is None:
            raise IsolationError("the repository has no commit yet", FIRST_COMMIT)
        add_ignore_rule(context)
        with monitor_leaks(context) as leak_monitor:
            tree = self._check_out(repository, context.base)
            restored = self._restore(tree) if context.settings.resumes else None
            self._complete(tree)
            if context.settings.resumes:
                restore_submodules(context, tree)
        return Workspace(tree.path, tree=tree, restored=restored, leak_monitor=leak_monitor)

    def _check_out(self, repository: Repository, base: str) -> LinkedWorktree:
        context = self.context
        warm = context.pool.choose(
            repository, base, context.path.parent, context.branch, continued=context.continues_branch
        )
        try:
            tree = self._create(repository, base, warm)
        except IsolationError as error:
            if warm is None:
                raise
            log.warning("pool.unused", f"no warm worktree: {error.message}", "ralph-wrap pool --fill")
            tree = self._create(repository, base, None)
        log_created(tree)
        inode, born = identity_of(tree.path)
        objects = sync.object_stamps(repository.common_dir)
        return tree._replace(objects=objects, inode=inode, born=born)

    def _create(self, repository: Repository, base: str, warm: WarmWorktree | None) -> LinkedWorktree:
        context = self.context
        return create(
            context.project.git,
            repository,
            new_worktree(context, base),
            CheckoutWatch(context.cancel, current().progress),
            offered=OfferedWorktree(warm, self._abandon) if warm else None,
        )

    def _restore(self, tree: LinkedWorktree) -> str | None:
        """Put the saved work of the earlier session back (see :func:`put_back`)."""
        context = self.context
        saved = put_back(
            tree.path,
            lambda: restore.restore(tree, context.project.git, context.record.id),
            lambda: self._abandon(tree),
        )
        if saved:
            self._warn_if_detached(tree)
        return saved

    def _warn_if_detached(self, tree: LinkedWorktree) -> None:
        """Warn if the saved work stands on a commit that the branch does not have: so do later commits."""
        head = read_head(tree.git(self.context.project.git))
        if head.branch is None and head.commit is not None:
            log.warning(
                "head.detached",
                f"HEAD is detached at {head.commit[:12]}, a commit that {tree.branch} does not have;"
                f" new commits will be on ralph/{self.context.record.id}-wip",
                command("git", "log", f"{tree.branch}..{head.commit[:12]}"),
            )

    def _abandon(self, tree: LinkedWorktree) -> None:
        """Save the changes in a worktree that cannot be used, and remove it."""
        context = self.context
        end = WorktreeEnd(context.project, context.record, WorktreePolicy())
        end.leave(tree, context.project.root / RUN / "trash", unstarted=True)

    def _complete(self, tree: LinkedWorktree) -> None:
        """Add what a checkout lacks: submodules, and copies of ignored files."""
        context = self.context
        if context.settings.submodules is SubmoduleMode.INIT:
            submodules.init_submodules(tree, context.project.git, cancel=context.cancel)
        copy_ignored_files(context, tree)
