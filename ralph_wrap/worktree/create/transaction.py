"""Make a worktree on a branch, or nothing at all.

The steps, each undone if a later one fails:

1. Create the branch. One with a name that the user chose is created or found under the repository's lock.
2. Under the lock: register the worktree without a checkout (see ``register``). This takes a millisecond. The
   path in the worktree's ``.git`` file is relative, so it works where the project is mounted under another
   path. The path in ``gitdir`` is absolute: git resolves a relative one against the current directory.
3. Outside the lock: check the files out, on several cores.

If there is a warm worktree (see ``warm``), it replaces the new registration in step 2. Then step 3 checks out
only the differences from the base.

``update-ref`` creates the branch, never ``worktree add -b``. So this module knows whether to undo the branch,
and git writes no tracking configuration.

This module never touches a branch, registration or directory that it did not make in the same call.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ralph_wrap.errors import (
    GitError,
    IsolationError,
    LockedError,
    RalphError,
    StoppedError,
    explained,
)
from ralph_wrap.git import (
    Git,
    Repository,
    file_system_config,
    finish_git,
    is_registered,
    list_refs,
    pointer,
    run_git,
    start_git,
)
from ralph_wrap.git.command import FIRST_SEARCH, require_unblocked
from ralph_wrap.git.safe.filters import missing_filters
from ralph_wrap.system import files
from ralph_wrap.system.disk import first_full, tells_no_room
from ralph_wrap.system.text import command, operands, rename_command
from ralph_wrap.worktree.create.new_worktree import CheckoutWatch, NewWorktree, OfferedWorktree
from ralph_wrap.worktree.layout import SPARSE, is_sparse, link, prepare
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.ownership import MARK
from ralph_wrap.worktree.register import WorktreeBranch, add
from ralph_wrap.worktree.warm import settle

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
    new: NewWorktree,
    watch: CheckoutWatch,
    *,
    registered: Callable[[LinkedWorktree], object] = lambda _: None,
    offered: OfferedWorktree | None = None,
) -> LinkedWorktree:
    """Make a worktree with every file checked out.

    Arguments:
        git: git at the project root.
        repository: the project's repository.
        new: the worktree to make.
        watch: tells of the checkout, and ends it.
        registered: called under the repository's lock, before another process can see the worktree.
        offered: a worktree that the pool has made in advance.

    Raises:
        IsolationError: it cannot be made; nothing is left of the attempt.
        RalphError: an object or the program of a filter is missing, or git would wait for a FIFO; nothing is
            left of the attempt.
        BranchBusyError: the branch is checked out in another worktree.
        ConflictError: another process held the lock of the repository all the time.
        StoppedError: a signal came; nothing is left of the attempt.

    """
    with _all_or_nothing(git, repository, new) as undo:
        head = WorktreeBranch(git, repository, new.branch, new.base, f"ralph-wrap: {new.owner.lock}")
        own = new.owner.mark is not None and not new.continued
        with head.create_own(undo) if own else head.create_named(undo, continued=new.continued) as tip:
            taken = offered if offered and offered.warm.is_untouched() else None
            worktree = LinkedWorktree(
                path=new.path,
                registration=_register(head, tip, new, taken, undo),
                common_dir=repository.common_dir,
                branch=new.branch,
                base=tip or new.base,
                branch_created=tip is None,
                config=file_system_config(file_mode=repository.file_mode, symlinks=repository.symlinks),
                warm=taken is not None,
                owner=new.owner,
            )
            if taken is not None:
                undo.callback(taken.abandon, worktree)
            prepare(git, worktree.registration, new.layout)
            registered(worktree)
        _check_out(worktree, git, taken.warm.commit if taken else None, watch)
        link(new.path, repository.root, new.layout.links)
    return worktree


@contextlib.contextmanager
def _all_or_nothing(git: Git, repository: Repository, new: NewWorktree) -> Iterator[contextlib.ExitStack]:
    """Yield the steps that undo a worktree, and run them if it cannot be made."""
    try:
        with contextlib.ExitStack() as undo:
            try:
                yield undo
            except LockedError:  # no reason to work in the project root: another process may want just that
                raise
            except (GitError, OSError) as error:
                if isinstance(error, GitError) and error.forbids_fallback:
                    raise RalphError(f"no worktree could be made: {error.message}", error.hint) from error
                _require_filters(git, repository, new.base)
                # The hint comes before the undo, which makes room on a full disk.
                _require_room("no worktree could be made", error, repository, new.path)
                raise IsolationError(
                    f"no worktree could be made: {_reason(error)}",
                    (isinstance(error, GitError) and error.hint) or _hint(git, repository, new.branch),
                ) from error
            undo.pop_all()
    except LockedError as error:
        raise explained(error) from error
    except (GitError, OSError) as error:
        _require_room("a half-made worktree could not be undone", error, repository, new.path)
        raise IsolationError(
            f"a half-made worktree could not be undone: {_reason(error)}",
            command("git", "worktree", "remove", "--force", "--force", new.path)
            + f" && {command('git', 'branch', '-D', *operands(new.branch))}",
        ) from error


def _register(
    branch: WorktreeBranch,
    tip: str | None,
    new: NewWorktree,
    taken: OfferedWorktree | None,
    undo: contextlib.ExitStack,
) -> Path:
    """Move a warm worktree to its directory, or register a new one there, and return the registration."""
    status = _claim_directory(new.path, undo)
    if taken is not None:
        return taken.warm.take(new.path, branch.name, new.owner)
    undo.callback(_remove_attempt, branch.git, branch.repository, new.path, status)
    return add(
        branch.git,
        branch.repository,
        new.path,
        new.owner,
        branch.ref,
        existed=tip is not None,
    )


def _claim_directory(path: Path, undo: contextlib.ExitStack) -> os.stat_result:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir()  # no other process has made it, so we may remove it from here on
    except FileExistsError:
        raise IsolationError(f"{path} is there already", "move it away") from None
    undo.callback(_remove_empty, path)
    return path.lstat()


def _remove_empty(path: Path) -> None:
    with contextlib.suppress(OSError):  # it is gone already, or not empty
        path.rmdir()


def _check_out(worktree: LinkedWorktree, git: Git, commit: str | None, watch: CheckoutWatch) -> None:
    """Check out the missing files.

    Arguments:
        git: git in the repository.
        commit: the commit that is checked out in it, ``None`` for a new worktree.

    """
    worktree_git = worktree.git(git)
    wait_for_names = _start_to_sync_names(worktree)
    if commit is None:
        check_out_new(worktree_git, watch)
    elif commit != worktree.base:
        _move(worktree_git, commit, worktree.base, watch)
    wait_for_names()
    if commit is not None:
        settle(worktree.registration)


def check_out_new(git: Git, watch: CheckoutWatch) -> None:
    """Check every file of HEAD out, where none is yet."""
    _run(git, watch, *_CHECKOUT)


def _move(git: Git, old: str, new: str, watch: CheckoutWatch) -> None:
    """Check out the differences between two commits."""
    command = ("read-tree", "-v", "-m", "-u", "--no-recurse-submodules", old, new)
    try:
        _run(git, watch, *command)
    except GitError:  # the index has other times for files: a copy of the project, another mount
        run_git(git, "update-index", "-q", "--refresh", accept=(0, 1))
        _run(git, watch, *command)


def _run(git: Git, watch: CheckoutWatch, *command: str) -> None:
    """Run a git command that checks files out, report its progress, and end it after a signal."""
    config = (*_PARALLEL_CHECKOUT, *(SPARSE if git.git_dir and is_sparse(git.git_dir) else ()))
    with start_git(git, *command, config=config) as running:
        shown, due, pause = "", time.monotonic() + FIRST_SEARCH, FIRST_SEARCH
        while not running.ended(_STOP_LATENCY):
            if time.monotonic() >= due:
                require_unblocked(running, " ".join(command[:2]))
                pause *= 2
                due = time.monotonic() + pause
            if watch.cancel.requested:
                raise StoppedError("a signal came during the checkout")
            if (now := running.latest()) != shown:
                shown = now
                watch.progress(f"checkout: {shown}")
        if shown:
            watch.progress("")
        finish_git(running, " ".join(command[:2]))


def _start_to_sync_names(worktree: LinkedWorktree) -> Callable[[], None]:
    """Start to sync the new branch and the files that identify the worktree, and return what waits for it.

    Git has not synced them, and power may fail.
    """
    refs, registration = worktree.common_dir / "refs", worktree.registration
    branch = refs / "heads" / worktree.branch
    parents = (parent for parent in branch.parents if parent.is_relative_to(refs))
    wait_for_branch = files.start_fsync(*((branch, *parents) if worktree.branch_created else ()))
    mark_names = (MARK,) if worktree.owner and worktree.owner.mark else ()
    wait_for_names = files.start_fsync(
        *(worktree.path / ".git", worktree.path, worktree.path.parent),
        *(registration / name for name in ("HEAD", "commondir", pointer.BACK, "locked", *mark_names)),
        *(registration, registration.parent),
    )

    def wait() -> None:
        wait_for_names()
        try:
            wait_for_branch()
        except OSError:  # it is in a reftable or in packed-refs, or git packs refs in this moment
            files.sync_file_system(worktree.common_dir)

    return wait


def _remove_attempt(git: Git, repository: Repository, path: Path, status: os.stat_result) -> None:
    """Remove an unfinished worktree, unless another directory is at its path now."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(path.lstat(), status):
            # Outside the lock, because it may hold many files by now.
            shutil.rmtree(path, ignore_errors=True)
    with repository_lock(repository.common_dir) as lock:
        if not os.path.lexists(path) and is_registered(git, path):
            run_git(git._replace(lock=lock), "worktree", "remove", "--force", "--force", path)


def _reason(error: GitError | OSError) -> str:
    if isinstance(error, GitError):
        return error.message
    return f"{error.strerror}: {os.fsdecode(error.filename or '')}"


def _require_filters(git: Git, repository: Repository, base: str) -> None:
    """Find out whether git could not check files out because the program of a filter is missing.

    It is no reason to work in the project root: the user can install it.

    Raises:
        RalphError: so it is.

    """
    with contextlib.suppress(GitError):
        for missing in missing_filters(git, repository, base):
            if missing.is_required:
                raise RalphError(f"no worktree could be made: {missing.problem}", missing.fix)


def _require_room(message: str, error: GitError | OSError, repository: Repository, path: Path) -> None:
    """Find out whether an attempt failed because a disk is full.

    It is no reason to work in the project root: the user can make room, and nothing could be saved there.

    Raises:
        RalphError: so it is.

    """
    full = first_full((repository.common_dir, path.parent))
    if full is None and tells_no_room(error):  # git has removed the file that did not fit
        full = path.parent
    if full is not None:
        raise RalphError(
            f"{message}: {_reason(error)}; the disk of {full} is full",
            f"make room, then type the command again: {command('df', '-h', full)}",
        ) from error


def _hint(git: Git, repository: Repository, branch: str) -> str:
    """Return the cause and its fix, from facts: git's own messages are for people, not for programs."""
    with contextlib.suppress(GitError):
        parents = [parent.as_posix() for parent in Path(branch).parents if parent.name]
        if refs := list_refs(git, *(f"refs/heads/{parent}" for parent in parents)):
            name = next(iter(refs)).removeprefix("refs/heads/")
            if name in parents:
                return f"branch {name} is in the way of {branch}: {rename_command(name, 'another-name')}"
    for directory in (repository.common_dir, repository.root):
        try:
            disk = os.statvfs(directory)
        except OSError:
            continue
        if disk.f_flag & os.ST_RDONLY:
            return f"{directory} is mounted read-only: mount it read-write"
        if not os.access(directory, os.W_OK):
            return f"{directory} cannot be written by user id {os.geteuid()}: start as its owner"
    probe = repository.root.parent / f"{repository.root.name}.probe"
    add_probe = command("git", "-C", repository.root, "worktree", "add", "--detach", probe)
    remove_probe = command("git", "-C", repository.root, "worktree", "remove", "--force", probe)
    return f"to see whether git alone can make one, and what it says: {add_probe} && {remove_probe}"
