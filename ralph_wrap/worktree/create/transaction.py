"""Make a worktree on a branch, or nothing at all.

The steps, each undone if a later one fails:

1. Under the repository's lock: create the branch, register the worktree without a checkout. Several
   ``git worktree add`` at once fail in one of ten (they read each other's half-written registration), so
   one at a time; without the checkout that is a matter of milliseconds.
2. Still under the lock: write the reason of the registration's lock, and make the worktree's ``.git``
   file relative, so that it works where the project is mounted under another path. The way back
   (``gitdir``) stays absolute: git resolves a relative one against the current directory.
3. Outside the lock: check the files out, on several cores.

Where a warm worktree is to be had (see ``warm``), it takes the place of the new registration in 1, and only
what differs from the base is checked out in 3.

The branch is created by ``update-ref`` before the worktree, never by ``worktree add -b``: then we know
whether it is ours to undo, and git writes no tracking configuration.

This module never touches a branch, registration or directory that it did not make in the same call.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.errors import BranchBusyError, GitError, IsolationError, StoppedError
from ralph_wrap.git import (
    create_ref,
    delete_ref,
    file_system_config,
    finish_git,
    is_registered,
    list_refs,
    pointer,
    run_git,
    start_git,
    worktree_holding,
)
from ralph_wrap.system import deferred, files
from ralph_wrap.worktree.layout import EVERYTHING, SPARSE, WorktreeLayout, is_sparse, link, prepare
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.ownership import MARK
from ralph_wrap.worktree.register import add
from ralph_wrap.worktree.warm import settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph_wrap.git import Git, Repository
    from ralph_wrap.system.cancel import CancelToken
    from ralph_wrap.worktree.ownership import WorktreeOwner
    from ralph_wrap.worktree.warm import WarmWorktree

# More workers than cores: they wait for the disk most of the time. Below the threshold the start of the
# workers costs more than they bring (both measured by benchmarks/start.py).
_PARALLEL_CHECKOUT = (
    *("-c", f"checkout.workers={2 * (os.cpu_count() or 1)}"),
    *("-c", "checkout.thresholdForParallelism=5000"),
)
# Not `reset --hard`, which locks the branch meanwhile: killed in that moment it leaves the lock behind.
_CHECKOUT = ("read-tree", "--reset", "-u", "-v", "--no-recurse-submodules", "HEAD")
_STOP_LATENCY = 0.1  # seconds until a signal ends a running checkout


def create(
    git: Git,
    repository: Repository,
    *,
    path: Path,
    branch: str,
    base: str,
    continued: bool,
    owner: WorktreeOwner,
    cancel: CancelToken,
    progress: Callable[[str], None],
    meanwhile: Callable[[], object],
    registered: Callable[[LinkedWorktree], object] = lambda _: None,
    layout: WorktreeLayout = EVERYTHING,
    warm: WarmWorktree | None = None,
    abandon: Callable[[LinkedWorktree], object] = lambda _: None,
) -> LinkedWorktree:
    """Make a worktree with every file checked out.

    Arguments:
        git: git at the project root.
        repository: the project's repository.
        path: the new directory; it must not exist.
        branch: checked out in it; created at *base*.
        base: commit id.
        continued: if the branch exists, go on with it.
        owner: what the registration says: whose it is, and why it is locked, for ``git worktree list``.
        cancel: whether the session is to end; the checkout is then cut short.
        progress: told how far a checkout is that takes a second or more.
        meanwhile: called once while git checks the files out.
        registered: called under the repository's lock before anybody else can see the worktree.
        layout: what of the repository it holds.
        warm: one that is taken, if it is still there, instead of a new one.
        abandon: takes back one that was taken, if a later step fails: somebody may have worked in it.

    Raises:
        IsolationError: it cannot be had; nothing is left of the attempt.
        BranchBusyError: the branch is checked out in another worktree.
        StoppedError: a signal came; nothing is left of the attempt.

    """
    try:
        with contextlib.ExitStack() as undo:
            try:
                with repository_lock(repository.common_dir):
                    tip = _claim_branch(git, repository, branch, base, continued, owner.lock, undo)
                    at = warm.commit if warm and warm.is_untouched() else None
                    made = _claim_directory(path, undo)
                    if at is None:
                        undo.callback(_remove_attempt, git, repository, path, made)
                    worktree = LinkedWorktree(
                        path=path,
                        registration=warm.take(path, branch, owner)
                        if warm and at
                        else add(git, path, owner.lock, path, branch, mark=owner.mark),
                        common_dir=repository.common_dir,
                        branch=branch,
                        base=tip or base,
                        branch_created=tip is None,
                        config=file_system_config(
                            file_mode=repository.file_mode, symlinks=repository.symlinks
                        ),
                        warm=at is not None,
                        owner=owner,
                    )
                    if at is not None:
                        undo.callback(abandon, worktree)
                    prepare(git, worktree.registration, layout)
                    registered(worktree)
                _check_out(worktree, git, at, cancel, progress, meanwhile)
                if at is not None:
                    settle(worktree.registration)
                link(path, repository.root, layout.links)
            except (GitError, OSError) as error:
                # Before the undo: it makes room on a full disk.
                raise IsolationError(
                    f"no worktree could be made: {_reason(error)}", _hint(git, repository, branch)
                ) from error
            undo.pop_all()
    except (GitError, OSError) as error:
        raise IsolationError(
            f"a half-made worktree could not be undone: {_reason(error)}",
            f"git worktree remove --force --force {path} && git branch -D {branch}",
        ) from error
    return worktree


def _claim_branch(
    git: Git,
    repository: Repository,
    branch: str,
    base: str,
    continued: bool,
    reason: str,
    undo: contextlib.ExitStack,
) -> str | None:
    """Make a branch, or return the tip of the one that is there and is to be continued."""
    ref = f"refs/heads/{branch}"
    tip = list_refs(git, ref).get(ref) if continued else None
    if tip is None:
        try:
            create_ref(git, ref, base, f"ralph-wrap: {reason}")
        except GitError as error:
            # Killed after it was done. Any other failure may mean that the branch is somebody else's.
            if error.status < 0 and list_refs(git, ref).get(ref) == base:
                undo.callback(_delete_branch, git, repository, ref, base)
            raise
        undo.callback(_delete_branch, git, repository, ref, base)
    elif holder := worktree_holding(git, ref):
        raise BranchBusyError(
            f"branch {branch} is checked out in {holder}", "name another branch, or end what works on it"
        )
    return tip


def _claim_directory(path: Path, undo: contextlib.ExitStack) -> os.stat_result:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir()  # from here on it is ours to remove: nobody else has made it
    except FileExistsError:
        raise IsolationError(f"{path} is there already", "move it away") from None
    undo.callback(_remove_empty, path)
    return path.lstat()


def _remove_empty(path: Path) -> None:
    with contextlib.suppress(OSError):  # gone already, or kept for what is in it
        path.rmdir()


def _check_out(
    worktree: LinkedWorktree,
    git: Git,
    at: str | None,
    cancel: CancelToken,
    progress: Callable[[str], None],
    meanwhile: Callable[[], object],
) -> None:
    """Check out what is not there yet.

    Arguments:
        worktree: the worktree.
        git: git in the repository.
        at: the commit that is checked out in it, ``None`` if none is.
        cancel: as for :func:`create`, and the next two.
        progress: see there.
        meanwhile: see there.

    """
    worktree_git = worktree.git(git)

    def while_git_works() -> None:
        _sync_names(worktree)
        meanwhile()

    if at is None:
        _run(worktree_git, cancel, progress, while_git_works, *_CHECKOUT)
        return
    if at == worktree.base:
        while_git_works()
        return
    move = ("read-tree", "-v", "-m", "-u", "--no-recurse-submodules", at, worktree.base)
    try:
        _run(worktree_git, cancel, progress, while_git_works, *move)
    except GitError:  # files have other times than the index knows: a copy of the project, another mount
        run_git(worktree_git, "update-index", "-q", "--refresh", accept=(0, 1))
        _run(worktree_git, cancel, progress, lambda: None, *move)


def _run(
    git: Git,
    cancel: CancelToken,
    progress: Callable[[str], None],
    meanwhile: Callable[[], object],
    *command: str,
) -> None:
    """Run a git command that checks files out, tell how far it is, and end it when a signal comes."""
    config = (*_PARALLEL_CHECKOUT, *(SPARSE if git.git_dir and is_sparse(git.git_dir) else ()))
    with start_git(git, *command, config=config) as running:
        meanwhile()
        shown = ""
        while not running.ended(_STOP_LATENCY):
            if cancel.requested:
                raise StoppedError("a signal came during the checkout")
            if (now := running.latest()) != shown:
                shown = now
                progress(f"checkout: {shown}")
        if shown:
            progress("")
        finish_git(running, " ".join(command[:2]))


def _sync_names(worktree: LinkedWorktree) -> None:
    """Have on the disk what says whose worktree it is; git syncs none of it, and power may fail."""
    registration = worktree.registration
    marks = (MARK,) if worktree.owner and worktree.owner.mark else ()
    named = (registration / name for name in ("HEAD", "commondir", pointer.BACK, "locked", *marks))
    files.fsync(worktree.path / ".git", worktree.path, worktree.path.parent)
    files.fsync(*named, registration, registration.parent)


def _remove_attempt(git: Git, repository: Repository, path: Path, made: os.stat_result) -> None:
    """Remove a worktree that is not finished, unless something else has taken its place."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(path.lstat(), made):
            # Outside the lock, because it may hold many files by now.
            deferred.shutil.rmtree(path, ignore_errors=True)
    with repository_lock(repository.common_dir) as lock:
        if not os.path.lexists(path) and is_registered(git, path):
            run_git(git._replace(lock=lock), "worktree", "remove", "--force", "--force", path)


def _delete_branch(git: Git, repository: Repository, ref: str, base: str) -> None:
    with repository_lock(repository.common_dir):
        if not worktree_holding(git, ref):  # a worktree that had to be kept
            delete_ref(git, ref, base)


def _reason(error: GitError | OSError) -> str:
    if isinstance(error, GitError):
        return error.message
    return f"{error.strerror}: {os.fsdecode(error.filename or '')}"


def _hint(git: Git, repository: Repository, branch: str) -> str:
    """Say what stands in the way, from facts: git's own words are for people, not for programs."""
    with contextlib.suppress(GitError):
        parents = [parent.as_posix() for parent in Path(branch).parents if parent.name]
        if taken := list_refs(git, *(f"refs/heads/{parent}" for parent in parents)):
            name = next(iter(taken)).removeprefix("refs/heads/")
            if name in parents:
                return f"branch {name} is in the way of {branch}: git branch -m {name} another-name"
    for place in (repository.common_dir, repository.root):
        try:
            disk = os.statvfs(place)
        except OSError:
            continue
        if disk.f_flag & os.ST_RDONLY:
            return f"{place} is mounted read-only: mount it read-write"
        if not os.access(place, os.W_OK):
            return f"{place} cannot be written by user id {os.geteuid()}: start as its owner"
        if disk.f_bavail * disk.f_frsize < _NEARLY_FULL or (disk.f_files and not disk.f_favail):
            return f"the disk of {place} is full: free some space"
    return "ralph-wrap doctor looks for the cause"


_NEARLY_FULL = 1 << 20
