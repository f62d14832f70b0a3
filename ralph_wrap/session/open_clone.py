"""Open the workspace of a session with ``--isolation clone``: a private clone, or an error.

Such a session never falls back to the plain project root: the user does not want its agent there.
"""

from __future__ import annotations

import errno
import os
from pathlib import PurePosixPath

from ralph_wrap.branches.intake import may_name_branches
from ralph_wrap.config import SubmoduleMode
from ralph_wrap.errors import (
    FIRST_COMMIT,
    BranchBusyError,
    GitError,
    IsolationError,
    RalphError,
)
from ralph_wrap.git import list_refs, worktree_holding
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
from ralph_wrap.state.project import CLONES, RUN, repository_of
from ralph_wrap.state.record import SessionRecord
from ralph_wrap.system import files
from ralph_wrap.system.log import current
from ralph_wrap.system.text import command, rename_command
from ralph_wrap.worktree.create import submodules
from ralph_wrap.worktree.create.clone import create_clone
from ralph_wrap.worktree.create.new_worktree import CheckoutWatch
from ralph_wrap.worktree.create.replica import refresh, trust_cloned
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.restore import restore


def open_clone(context: SessionContext) -> Workspace:
    """Make the clone of a session, and begin to watch what is outside it.

    Raises:
        IsolationError: it cannot be made; nothing is left of the attempt.
        ConflictError: the saved work of the earlier session conflicts with its branch.
        StoppedError: a signal arrived.

    """
    try:
        return _open(context)
    except RalphError as error:
        if isinstance(error, IsolationError) or error is context.project.obstacle:
            raise IsolationError(f"isolation is required: {error.message}", error.hint) from error
        raise


def _open(context: SessionContext) -> Workspace:
    base = _prepare(context)
    if context.continues_branch:
        _require_free_branch(context)
    leak_monitor = monitor_leaks(context)

    with leak_monitor:
        tree = _make(context, base)
        restored = _restore(context, tree) if context.settings.resumes else None
        if context.settings.submodules is SubmoduleMode.INIT:
            _init_submodules(context, tree)
        copy_ignored_files(context, tree)
    return Workspace(tree.path, tree=tree, restored=restored, leak_monitor=leak_monitor)


def _make(context: SessionContext, base: str) -> LinkedWorktree:
    replica, end = context.replica, context.clone_end
    assert replica is not None
    assert end is not None
    tree = create_clone(
        context.project.git,
        repository_of(context.project),
        new_worktree(context, base),
        CheckoutWatch(context.cancel, current().progress),
        replica=replica,
        agent_id=context.record.id,
    )
    log_created(tree)
    end.keep_base()
    return tree


def _prepare(context: SessionContext) -> str:
    """Make the directory of the clones, in which git ignores all files, and return the commit to start from.

    Raises:
        IsolationError: there can be no clone.

    """
    project, clones = context.project, context.path.parent
    if context.base is None:
        raise IsolationError("the repository has no commit yet", FIRST_COMMIT)
    if project.is_nested:
        raise IsolationError("a clone starts from a checkout of yours", command("cd", project.main))
    homes = {project.root / RUN, project.root / CLONES / RUN.name}
    try:
        if context.home is None or context.home.directory not in homes:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        clones.mkdir(parents=True, exist_ok=True)
        files.fill(clones / ".gitignore", b"*\n")
    except OSError as error:
        raise IsolationError(
            f"{clones} cannot be used: {error.strerror}",
            f"it must be a directory that can be written: {clones}",
        ) from error
    return context.base


def _require_free_branch(context: SessionContext) -> None:
    """Check that a branch that the user named may come out of the clone.

    Raises:
        BranchBusyError: it is checked out, or another clone works on it.
        IsolationError: a record here may not name it, or another branch is in its way.

    """
    project, branch, own = context.project, context.branch, f"ralph/{context.record.id}"
    home = context.home
    if branch != own and not (home and may_name_branches(project, home)):
        raise IsolationError(f"branch {branch} needs {project.root / RUN}, which cannot be written")
    others = [
        record.workspace
        for record in (home.unfinished() if home else ())
        if isinstance(record, SessionRecord)
        and record.branch == branch
        and record.session != context.record.session
    ]
    if holder := worktree_holding(project.git, f"refs/heads/{branch}") or next(iter(others), None):
        raise BranchBusyError(
            f"branch {branch} is checked out in {holder}", "name another branch, or end what works on it"
        )
    parents = [parent.as_posix() for parent in PurePosixPath(branch).parents if parent.name]
    if found := list_refs(project.git, *(f"refs/heads/{name}" for name in (*parents, f"{branch}/"))):
        name = min(found).removeprefix("refs/heads/")
        if name in parents or name.startswith(f"{branch}/"):
            raise IsolationError(f"branch {name} is in the way of {branch}", rename_command(name))


def _init_submodules(context: SessionContext, tree: LinkedWorktree) -> None:
    """Initialise the submodules of the clone, and copy their repositories to the replica.

    Raises:
        IsolationError: a file cannot be copied.

    """
    own, shared = tree.path / ".git", repository_of(context.project).common_dir
    # No agent has worked in the clone yet, so git may run in it.
    clone = tree._replace(registration=own, common_dir=own, clone=False)
    submodules.init_submodules(clone, context.project.git, cancel=context.cancel, model=shared)
    try:
        refresh(tree, context.keeping.git)
        trust_cloned(tree, own)
        if context.settings.resumes:
            restore_submodules(context, clone)
            refresh(tree, context.keeping.git)
    except (GitError, OSError) as error:
        raise IsolationError(
            f"the submodules cannot be copied: {error}", "is the disk full? df -h"
        ) from error


def _restore(context: SessionContext, tree: LinkedWorktree) -> str | None:
    """Put the saved work of the earlier session back (see :func:`put_back`)."""
    git = context.keeping.git
    own = tree.path / ".git"

    def restore_work() -> str | None:
        # No agent has worked in the clone yet, so git may run in it.
        clone = tree._replace(registration=own, common_dir=own)
        saved = restore(clone, git._replace(cwd=own, git_dir=own), context.record.id)
        refresh(tree, git)
        return saved

    def abandon() -> None:
        end = WorktreeEnd(context.keeping, context.record, WorktreePolicy())
        assert context.home is not None
        end.leave(tree, context.home.trash, unstarted=True)

    return put_back(tree.path, restore_work, abandon)
