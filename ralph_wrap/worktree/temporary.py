"""A temporary worktree in which is tried what may fail, before anything of the user's moves.

One process at a time has one, in ``.ralph/run/landing`` of its project: whoever holds the ``flock(2)`` on the
directory ``refs`` of the repository, which several projects may share; the kernel frees it when its holder
dies. So what somebody else has left there is of the dead, and whoever comes next takes it away: nobody but us
ever works in it, and nothing in it is on no branch that matters.

It is a worktree as any other of ours, detached and locked against ``git worktree prune``. Killed at any point
it breaks nothing: a locked registration more, or a directory that git does not know. A registration or a
directory that a user has put in its place stays.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.errors import GitError, RalphError, StoppedError
from ralph_wrap.git import file_system_config, pointer, run_git
from ralph_wrap.system import directory_users, files
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.worktree.layout import SPARSE, cone
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.managed.find import OURS
from ralph_wrap.worktree.model import TEMPORARY
from ralph_wrap.worktree.ownership import is_begun, is_locked_for, is_unfinished
from ralph_wrap.worktree.recover import take_apart
from ralph_wrap.worktree.register import add, pointers_to
from ralph_wrap.worktree.trash import discard, discard_worktree, new_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralph_wrap.git import Git, Repository
    from ralph_wrap.state.registry import Registry
    from ralph_wrap.system.cancel import CancelToken
    from ralph_wrap.system.log import Log

REASON = f"{OURS} merge"
"""Why the registration is locked."""

_PLACE = "landing"
_TAIL = 4  # parts of a path: .ralph/run/landing/<name>
_TICK = 200  # milliseconds between two looks at a lock that somebody else holds


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
def turn(
    repository: Repository, home: Registry, log: Log, cancel: CancelToken, *, wait: bool = True
) -> Iterator[None]:
    """Be the only one in a repository who tries and lands, until the context is left.

    Arguments:
        repository: where it is to be ours.
        home: of the project.
        log: that somebody else is at it.
        cancel: whether a signal came.
        wait: for another process that has its turn; without it, the turn is had at once or not at all.

    Raises:
        StoppedError: it came while somebody else was at it.
        RalphError: the project cannot be written.

    """
    lock = _lock(repository)
    try:
        home.prepare()
        held = files.try_lock(lock)
        if held is None:
            log.event("merge.waiting", "another merge is at work in this repository: waiting for its end")
        while held is None:
            if cancel.requested or not wait:
                raise StoppedError("a signal came while another merge was at work; nothing has moved")
            select.poll().poll(_TICK)
            held = files.try_lock(lock)
    except OSError as error:
        raise _unusable(lock, error) from error
    try:
        yield
    finally:
        held.release()


def is_taken(repository: Repository) -> bool:
    """Tell whether it is somebody's turn.

    Raises:
        OSError: that cannot be told.

    """
    return files.is_locked(_lock(repository))


def _lock(repository: Repository) -> Path:
    return repository.common_dir / "refs"  # there whatever way refs are stored (gitrepository-layout(5))


def is_left(home: Registry) -> bool:
    """Tell whether there is a temporary worktree, somebody's or nobody's."""
    return any((home.directory / _PLACE).glob(TEMPORARY.pattern))


@contextlib.contextmanager
def opened(
    git: Git, repository: Repository, home: Registry, commit: str, *, whole: bool
) -> Iterator[TemporaryWorktree]:
    """Have a temporary worktree at a commit; it is gone when the context is left.

    Arguments:
        git: git in the repository.
        repository: the project's.
        home: of the project, in which it is our turn.
        commit: object id.
        whole: every file is checked out, not just those at the top level.

    Raises:
        RalphError: it cannot be had.

    """
    try:
        made = _make(git, repository, home, commit, whole=whole)
    except OSError as error:
        raise _unusable(home.directory / _PLACE, error) from error
    try:
        yield made
    finally:
        # What cannot be removed harms nobody, and the next one tries it again.
        with contextlib.suppress(GitError, OSError):
            _remove(repository, home, made.path)


def tidy(repository: Repository, home: Registry) -> None:
    """Take away what is left of those who were killed; our turn it is.

    Raises:
        OSError: something of it cannot be read or moved.

    """
    place = home.directory / _PLACE
    if place.is_symlink():
        raise OSError(errno.ELOOP, "it is a symlink", os.fspath(place))
    registrations = repository.common_dir.glob(f"worktrees/{TEMPORARY.pattern}")
    registered = {path.name for path in registrations if _is_of(path, place)}
    there = {path.name for path in place.glob(TEMPORARY.pattern) if not path.is_symlink()}
    for name in sorted(registered | there):
        if TEMPORARY.fits(name) and not directory_users.occupants(place / name):
            _remove(repository, home, place / name)


def _is_of(registration: Path, directory: Path) -> bool:
    """Tell whether a registration is of this project: others may share the repository."""
    path = directory / registration.name
    try:
        back = files.read(registration / pointer.BACK)
    except OSError:  # killed in the middle of `git worktree add`
        return path.is_dir()
    # Made where the project is mounted elsewhere, it bears another path, but its directory is here.
    return back == pointer.back_to(path) or (pointer.is_below_some_mount(back, path, _TAIL) and path.is_dir())


def _make(git: Git, repository: Repository, home: Registry, commit: str, *, whole: bool) -> TemporaryWorktree:
    path = home.directory / _PLACE / TEMPORARY.new()
    path.parent.mkdir(exist_ok=True)
    sparse = () if whole else SPARSE
    try:
        with repository_lock(repository.common_dir):
            path.mkdir()
            registration = add(git, path, REASON, "--detach", path, commit)
        if not whole:
            (registration / "info").mkdir(exist_ok=True)
            files.replace(registration / "info" / "sparse-checkout", cone(()), sync=False)
        here = git._replace(
            cwd=path,
            git_dir=registration,
            common_dir=repository.common_dir,
            work_tree=path,
            config=(
                *file_system_config(file_mode=repository.file_mode, symlinks=repository.symlinks),
                *(sparse or ("-c", "core.sparseCheckout=false")),
            ),
        )
        run_git(here, "reset", "--hard", "--quiet", "--no-recurse-submodules", commit)
    except BaseException:
        with contextlib.suppress(GitError, OSError):
            _remove(repository, home, path)
        raise
    return TemporaryWorktree(path, registration, here)


def _remove(repository: Repository, home: Registry, path: Path) -> None:
    """Forget a temporary worktree, whole or half-made; registration and directory go to the trash at once."""
    registration = repository.common_dir / "worktrees" / path.name
    with repository_lock(repository.common_dir):
        if os.path.lexists(registration) and not _is_ours(registration, path.parent):
            return
        if not (registration / "index").exists() and is_begun(path, pointers_to(registration, path)):
            take_apart(registration, path, REASON, None)
        else:
            discard_worktree(path, home.trash / new_name(), registration, path)
        if registration.is_dir():
            discard(registration, home.trash / new_name(), lambda read: read("locked").startswith(REASON))
        with contextlib.suppress(OSError):
            registration.parent.rmdir()  # git leaves none of these behind either


def _is_ours(registration: Path, directory: Path) -> bool:
    """Tell whether a registration is that of a temporary worktree, whole or half-made."""
    if registration.is_symlink() or not registration.is_dir() or not _is_of(registration, directory):
        return False
    return is_locked_for(registration, REASON) or is_unfinished(registration, REASON, None)


def _unusable(path: Path, error: OSError) -> RalphError:
    return RalphError(
        f"{error.filename or path} cannot be used: {error.strerror or error}; nothing has moved",
        "it must be writable, on a disk that is not full",
    )
