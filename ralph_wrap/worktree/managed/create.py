"""Make a worktree that is no session's: for other programs, and for whoever enters one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ralph_wrap.errors import RalphError
from ralph_wrap.worktree.create.transaction import create
from ralph_wrap.worktree.layout import EVERYTHING, Layout, core_config
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.managed.find import LOCKED
from ralph_wrap.worktree.managed.git_config import HOOKS_OFF, configure, require_configurable, tidy_hooks
from ralph_wrap.worktree.managed.metadata import Mark, write_mark
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.ownership import Owner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ralph_wrap.git import Git, Repository


def make(
    where: Git,
    repository: Repository,
    path: Path,
    mark: Mark,
    *,
    continued: bool = False,
    hooks_off: bool = False,
    layout: Layout = EVERYTHING,
    stopped: Callable[[], bool] = lambda: False,
    progress: Callable[[str], None] = lambda _: None,
) -> LinkedWorktree:
    """Make a worktree that bears a mark.

    Arguments:
        path: the new directory; it must not exist.
        mark: what it is made for; whether its branch was created is found out.
        continued: if the branch exists, go on with it.
        hooks_off: no git hook runs for whoever works in it.
        layout: what of the repository it holds.
        stopped: tells that a signal came; the checkout is then cut short.
        progress: told how far a checkout is that takes a second or more.

    Raises:
        IsolationError: it cannot be had; nothing is left of the attempt.
        BranchBusyError: the branch is checked out in another worktree.
        RefusedError: it cannot have the configuration of its own that it needs.
        ConflictError: somebody else holds the lock of the configuration.
        StoppedError: a signal came; nothing is left of the attempt.

    """
    configured = hooks_off or layout != EVERYTHING
    if configured:
        require_configurable(where, repository)

    def complete(tree: LinkedWorktree) -> None:
        write_mark(
            tree.registration,
            mark._replace(
                base=tree.base,
                branch_created=tree.branch_created,
                configured=configured,
                file_mode=repository.file_mode,
                symlinks=repository.symlinks,
            ),
        )
        if configured:
            configure(where, tree, [*([HOOKS_OFF] if hooks_off else []), *core_config(tree.registration)])

    try:
        return create(
            where,
            repository,
            path=path,
            branch=mark.branch,
            base=mark.base,
            continued=continued,
            owner=Owner(f"{LOCKED}{mark.branch}"),
            stopped=stopped,
            progress=progress,
            meanwhile=lambda: None,
            registered=complete,
            layout=layout,
        )
    except BaseException:
        if configured:
            # Not instead of the reason: the next one that is made or removed tidies, too.
            with contextlib.suppress(RalphError, OSError), repository_lock(repository.common_dir):
                tidy_hooks(repository.common_dir)
        raise
