"""A temporary worktree for trial merges: they run here before any branch or file of the user changes.

One process at a time has one, in ``.ralph/run/landing`` of its project. This process holds the ``flock(2)``
on the directory ``refs`` of the repository. Several projects may share a repository. The kernel frees the
lock when the process dies. So any temporary worktree of another process belongs to a dead process, and the
next process removes it. Only ralph-wrap works in it, and it never holds the only copy of any work.

It is detached, and locked against ``git worktree prune``. If its process is killed at any point, only a
locked registration is left, or a directory that git does not know. If a user has replaced the registration or
the directory, it stays.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import ConflictError, GitError, LockedError, RalphError, StoppedError, explained
from ralph_wrap.git import Git, Repository, file_system_config, pointer, run_git
from ralph_wrap.state.registry import Registry
from ralph_wrap.system import files, process_table
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.files import lock_holder
from ralph_wrap.system.log import get_logger
from ralph_wrap.worktree.layout import SPARSE, cone
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.managed.find import OURS
from ralph_wrap.worktree.model import TEMPORARY
from ralph_wrap.worktree.ownership import WorktreeOwner, is_begun, is_locked_for, is_unfinished
from ralph_wrap.worktree.recover import take_apart
from ralph_wrap.worktree.register import add, pointers_to
from ralph_wrap.worktree.trash import discard, discard_worktree, new_name

log = get_logger()

REASON = f"{OURS} merge"
"""The reason of the registration's lock."""

_PLACE = "landing"
_TAIL = 4  # parts of a path: .ralph/run/landing/<name>
_TICK = 200  # milliseconds between two tries to get the lock


class TemporaryWorktree(NamedTuple):
    """A temporary worktree.

    Attributes:
        path: its directory.
        registration: ``.git/worktrees/<name>``.
        git: git in it.

    """

    path: Path
    registration: Path
    git: Git


@contextlib.contextmanager
def turn(repository: Repository, home: Registry, cancel: CancelToken, *, wait: bool = True) -> Iterator[None]:
    """Be the only process that merges in a repository, until the context ends.

    Arguments:
        home: the registry of the project.
        cancel: a signal ends the wait.
        wait: wait for the end of another merge. Without it, another merge is an error.

    Raises:
        StoppedError: a signal came during the wait, or *wait* is false and another process merges.
        RalphError: the project cannot be written.

    """
    path = _lock(repository)
    try:
        home.prepare()
        lock = files.try_lock(path)
        if lock is None:
            held = lock_holder.held_lock(path)
            message = f"another merge is at work in this repository: {held.sentence}"
            if not wait:
                raise StoppedError(f"{message}; nothing has moved", held.hint)
            log.warning("merge.waiting", f"{message}; waiting for its end", held.hint, **held.facts)
        while lock is None:
            if cancel.requested:
                raise StoppedError("a signal came while another merge is at work; nothing has moved")
            select.poll().poll(_TICK)
            lock = files.try_lock(path)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        yield
    finally:
        lock.release()


def is_taken(repository: Repository) -> bool:
    """Return whether a process merges in the repository.

    Raises:
        OSError: the lock cannot be read.

    """
    return files.is_locked(_lock(repository))


def require_turn(repository: Repository) -> None:
    """Check that no process merges in the repository.

    Raises:
        ConflictError: a process does; the error names it.
        OSError: the lock cannot be read.

    """
    if is_taken(repository):
        held = lock_holder.held_lock(_lock(repository))
        raise ConflictError(
            f"another merge is at work in this repository: {held.sentence}; nothing has moved", held.hint
        )


def _lock(repository: Repository) -> Path:
    return repository.common_dir / "refs"  # exists with every format of refs (gitrepository-layout(5))


def is_left(home: Registry) -> bool:
    """Return whether there is a temporary worktree, of a running or of a dead process."""
    return any((home.directory / _PLACE).glob(TEMPORARY.pattern))


@contextlib.contextmanager
def opened(
    git: Git, repository: Repository, home: Registry, commit: str, *, whole: bool
) -> Iterator[TemporaryWorktree]:
    """Make a temporary worktree at a commit, and remove it when the context ends.

    Arguments:
        git: git in the repository.
        repository: the project's repository.
        home: the registry of the project; the caller holds the lock (see :func:`turn`).
        commit: object id.
        whole: check out every file, not only those at the top level.

    Raises:
        RalphError: it cannot be made.

    """
    try:
        temporary = _make(git, repository, home, commit, whole=whole)
    except OSError as error:
        raise _unusable(home.directory / _PLACE, error) from error
    try:
        yield temporary
    finally:
        # If this fails, the rest does no harm, and the next process tries again.
        with contextlib.suppress(GitError, OSError):
            _remove(repository, home, temporary.path)


def tidy(repository: Repository, home: Registry) -> None:
    """Remove the temporary worktrees of killed processes; the caller holds the lock (see :func:`turn`).

    Raises:
        OSError: a file cannot be read or moved.

    """
    directory = home.directory / _PLACE
    if directory.is_symlink():
        raise OSError(errno.ELOOP, "it is a symlink", os.fspath(directory))
    registrations = repository.common_dir.glob(f"worktrees/{TEMPORARY.pattern}")
    registered = {path.name for path in registrations if _is_of(path, directory)}
    on_disk = {path.name for path in directory.glob(TEMPORARY.pattern) if not path.is_symlink()}
    for name in sorted(registered | on_disk):
        if TEMPORARY.fits(name) and not process_table.occupants(directory / name):
            _remove(repository, home, directory / name)


def _is_of(registration: Path, directory: Path) -> bool:
    """Return whether a registration belongs to this project: other projects may share the repository.

    One without a ``gitdir`` file belongs to every project. A process was killed while git made it, or while
    it was deleted, and the directory may be gone. The caller holds the lock, so no process works with it.
    """
    path = directory / registration.name
    try:
        content = files.read(registration / pointer.BACK)
    except FileNotFoundError:
        return True
    except OSError:
        return path.is_dir()
    # Made under another mount point, it names another path, but its directory is here.
    return content == pointer.gitdir_content(path) or (
        pointer.is_below_some_mount(content, path, _TAIL) and path.is_dir()
    )


def _make(git: Git, repository: Repository, home: Registry, commit: str, *, whole: bool) -> TemporaryWorktree:
    path = home.directory / _PLACE / TEMPORARY.new()
    path.parent.mkdir(exist_ok=True)
    sparse = () if whole else SPARSE
    try:
        with repository_lock(repository.common_dir):
            path.mkdir()
            registration = add(git, repository, path, WorktreeOwner(REASON), commit)
        if not whole:
            (registration / "info").mkdir(exist_ok=True)
            files.replace(registration / "info" / "sparse-checkout", cone(()), sync=False)
        temporary_git = git._replace(
            cwd=path,
            git_dir=registration,
            common_dir=repository.common_dir,
            work_tree=path,
            config=(
                *file_system_config(file_mode=repository.file_mode, symlinks=repository.symlinks),
                *(sparse or ("-c", "core.sparseCheckout=false")),
            ),
        )
        run_git(temporary_git, "reset", "--hard", "--quiet", "--no-recurse-submodules", commit)
    except BaseException:
        with contextlib.suppress(GitError, OSError):
            _remove(repository, home, path)
        raise
    return TemporaryWorktree(path, registration, temporary_git)


def _remove(repository: Repository, home: Registry, path: Path) -> None:
    """Unregister a temporary worktree, whole or half-made; registration and directory go to the trash."""
    registration = repository.common_dir / "worktrees" / path.name
    with repository_lock(repository.common_dir):
        if os.path.lexists(registration) and not _is_ours(registration, path.parent):
            return
        if not (registration / "index").exists() and is_begun(path, pointers_to(registration, path)):
            take_apart(registration, path, REASON, None)
        else:
            discard_worktree(path, home.trash / new_name(), registration, path)
        if registration.is_dir():
            # On a full disk it is deleted in place, file by file. Without this file git does not see it.
            with contextlib.suppress(OSError):
                (registration / pointer.BACK).unlink()
            discard(registration, home.trash / new_name(), lambda read: read("locked").startswith(REASON))
        with contextlib.suppress(OSError):
            registration.parent.rmdir()  # git also removes this directory when it is empty


def _is_ours(registration: Path, directory: Path) -> bool:
    """Return whether a registration is that of a temporary worktree, whole or half-made."""
    if registration.is_symlink() or not registration.is_dir() or not _is_of(registration, directory):
        return False
    return is_locked_for(registration, REASON) or is_unfinished(registration, REASON, None)


def _unusable(path: Path, error: OSError) -> RalphError:
    if isinstance(error, LockedError):
        return explained(error)
    return RalphError(
        f"{error.filename or path} cannot be used: {error.strerror or error}; nothing has moved",
        "it must be writable, on a disk that is not full",
    )
