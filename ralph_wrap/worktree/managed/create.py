"""Make a worktree without a session of ours: for other programs, and for agents that enter one."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import RalphError
from ralph_wrap.git import Git, Repository, list_refs
from ralph_wrap.git.safe.filters import require_same_files
from ralph_wrap.worktree.create.new_worktree import CheckoutWatch, NewWorktree
from ralph_wrap.worktree.create.transaction import create
from ralph_wrap.worktree.layout import EVERYTHING, WorktreeLayout, core_config
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.managed.find import LOCKED
from ralph_wrap.worktree.managed.git_config import HOOKS_OFF, configure, require_configurable, tidy_hooks
from ralph_wrap.worktree.managed.metadata import WorktreeMetadata, write_mark
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.ownership import WorktreeOwner


class ManagedOptions(NamedTuple):
    """How a managed worktree differs from any other.

    Attributes:
        continued: check out the branch if it exists.
        hooks_off: switch off git hooks in it.
        layout: the part of the repository that it holds.

    """

    continued: bool = False
    hooks_off: bool = False
    layout: WorktreeLayout = EVERYTHING


def make(
    git: Git,
    repository: Repository,
    path: Path,
    mark: WorktreeMetadata,
    options: ManagedOptions,
    watch: CheckoutWatch,
) -> LinkedWorktree:
    """Make a worktree with a mark.

    Arguments:
        path: the new directory; it must not exist.
        mark: its mark; this function sets ``branch_created`` itself.
        options: how it differs from any other.
        watch: tells of the checkout, and ends it.

    Raises:
        IsolationError: it cannot be made; nothing is left of the attempt.
        UntrustedError: a filter that the user has not approved applies to a file.
        BranchBusyError: the branch is checked out in another worktree.
        RefusedError: it needs its own git configuration, which is not possible here.
        ConflictError: another process holds the lock of the configuration.
        StoppedError: a signal came; nothing is left of the attempt.

    """
    tips = list_refs(git, f"refs/heads/{mark.branch}").values() if options.continued else ()
    require_same_files(git, repository, mark.base, *tips)
    mark = mark._replace(configured=options.hooks_off or options.layout != EVERYTHING)
    if mark.configured:
        require_configurable(git, repository)
    try:
        return create(
            git,
            repository,
            NewWorktree(
                path=path,
                branch=mark.branch,
                base=mark.base,
                owner=WorktreeOwner(f"{LOCKED}{mark.branch}"),
                continued=options.continued,
                layout=options.layout,
            ),
            watch,
            registered=lambda tree: _complete(tree, git, repository, mark, hooks_off=options.hooks_off),
        )
    except BaseException:
        if mark.configured:
            # An error here must not hide the first one. The next creation or removal tidies, too.
            with contextlib.suppress(RalphError, OSError), repository_lock(repository.common_dir):
                tidy_hooks(repository.common_dir)
        raise


def _complete(
    tree: LinkedWorktree, git: Git, repository: Repository, mark: WorktreeMetadata, *, hooks_off: bool
) -> None:
    """Write the mark and the configuration of a new worktree; the caller holds the repository's lock."""
    write_mark(
        tree.registration,
        mark._replace(
            base=tree.base,
            branch_created=tree.branch_created,
            file_mode=repository.file_mode,
            symlinks=repository.symlinks,
        ),
    )
    if mark.configured:
        configure(git, tree, [*([HOOKS_OFF] if hooks_off else []), *core_config(tree.registration)])
