"""Register a worktree, locked against ``git worktree prune``, and usable under every mount point.

This module writes the registration itself (gitrepository-layout(5)), without a git process. The file
``gitdir`` comes last, by a rename. Git ignores a registration without this file, so no process ever reads a
half-written one. ``git worktree add`` writes it first: beside 60 starts, 11 of 4,354 ``git branch`` and
``git worktree list`` of another process failed with *failed to read commondir* (git 2.39), against 0 of 3,472
beside ours. Where only git knows enough, ``git worktree add`` registers the worktree (see :func:`add`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import BranchBusyError
from ralph_wrap.git import (
    ABSOLUTE_POINTERS,
    Git,
    Repository,
    delete_ref,
    finish_git,
    list_refs,
    pointer,
    run_git_again,
    start_to_create_branch,
    worktree_holding,
)
from ralph_wrap.system import files
from ralph_wrap.system.process import RunningCommand
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.ownership import SessionMark, WorktreeOwner, others_naming, write_mark

_UNLOGGED = ("-c", "core.logAllRefUpdates=false")  # the reflog begins with the work in the worktree
_HEADS = "refs/heads/"
_PATIENCE = 10.0  # seconds for git to create a branch, after another step of the start has failed
_UNFIT = re.compile(r"[^\w.-]|^\.|\.(?=\.|$|lock$)")  # characters that no name of a registration has


class WorktreeBranch(NamedTuple):
    """The branch of a new worktree.

    Attributes:
        git: git at the project root.
        repository: the project's repository.
        name: its name, without ``refs/heads/``.
        base: id of the commit at which it is created.
        reason: message for its reflog.

    """

    git: Git
    repository: Repository
    name: str
    base: str
    reason: str

    @property
    def ref(self) -> str:
        """Its full name."""
        return f"{_HEADS}{self.name}"

    @contextlib.contextmanager
    def create_own(self, undo: contextlib.ExitStack) -> Iterator[str | None]:
        """Create the branch of a session, and then take the lock of the repository.

        Its name is new: no other process wants it, and no HEAD names it. So the lock is not held meanwhile.

        Arguments:
            undo: gets the step that deletes the branch.

        Returns:
            The context manager returns ``None``: the branch did not exist before.

        Raises:
            GitError: it exists already, or the name of another branch conflicts with it.
            LockedError: another process held the lock all the time.
            OSError: git or the lock cannot be had.

        """
        with self._creating() as creating:
            undo.callback(self._delete_if_created, creating)
            finish_git(creating, "update-ref")
        with repository_lock(self.repository.common_dir):
            yield None

    @contextlib.contextmanager
    def create_named(self, undo: contextlib.ExitStack, *, continued: bool) -> Iterator[str | None]:
        """Take the lock of the repository, and then create the branch that a user named.

        Arguments:
            undo: gets the step that deletes a created branch.
            continued: the branch may exist already.

        Returns:
            The context manager returns the commit of the branch if it existed before, else ``None``.

        Raises:
            BranchBusyError: the branch is checked out in another worktree.
            GitError: it exists and is not to be continued, or the name of another branch conflicts with it.
            LockedError: another process held the lock all the time.

        """
        with repository_lock(self.repository.common_dir):
            found = list_refs(self.git, self.ref).get(self.ref)
            tip = found if continued else None
            # A HEAD can also name a branch that does not exist yet (git-checkout(1): --orphan).
            if (continued or not found) and (holder := worktree_holding(self.git, self.ref)):
                raise BranchBusyError(
                    f"branch {self.name} is checked out in {holder}",
                    "name another branch, or end what works on it",
                )
            if tip is None:
                with self._creating() as creating:
                    undo.callback(self._take_back, creating)
                    finish_git(creating, "update-ref")
            yield tip

    @contextlib.contextmanager
    def _creating(self) -> Iterator[RunningCommand]:
        with start_to_create_branch(self.git, self.name, self.base, self.reason) as creating:
            try:
                yield creating
            finally:
                # If it were killed here, it would be unclear whether the branch is another owner's.
                creating.ended(_PATIENCE)

    def _take_back(self, creating: RunningCommand) -> None:
        with repository_lock(self.repository.common_dir):
            self._delete_if_created(creating)

    def _delete_if_created(self, creating: RunningCommand) -> None:
        status = creating.wait().status
        # git was killed after it created the branch. After any other error it may be another owner's.
        created = status == 0 or (status < 0 and list_refs(self.git, self.ref).get(self.ref) == self.base)
        if created and not worktree_holding(self.git, self.ref):  # a worktree that is kept may have it
            delete_ref(self.git, self.ref, self.base)


def add(
    git: Git,
    repository: Repository,
    path: Path,
    owner: WorktreeOwner,
    head: str,
    *,
    existed: bool = False,
) -> Path:
    """Register a worktree in an empty directory, without a checkout, and return its registration.

    The caller holds the lock of the repository.

    Arguments:
        git: git in the repository.
        repository: the project's repository.
        path: the directory.
        owner: the mark of the registration, and the reason of its lock.
        head: the full name of an existing branch, or an object id for a detached HEAD.
        existed: other processes know the branch. Only git can tell whether it is being rebased elsewhere.

    Raises:
        GitError: git refuses.
        OSError: a file cannot be read or written, or another registration names the directory.

    """
    if existed or _needs_git(repository):
        return _add_by_git(git, path, owner, head)
    registration = _make_directory(repository.common_dir, path.name, owner.lock)
    try:
        _write(registration, path, f"ref: {head}" if head.startswith(_HEADS) else head, owner.mark)
    except BaseException:
        with contextlib.suppress(OSError):  # the rest has no file gitdir, so git ignores it
            remove_unfinished(registration)
        raise
    return registration


def _needs_git(repository: Repository) -> bool:
    """Return whether a registration in this repository holds more than the files that each one has.

    With reftables, ``refs/heads`` is a file, and HEAD is in a table. And git copies two files of the checkout
    if the configuration switches them on. One is its own configuration (git-worktree(1): CONFIGURATION FILE).
    The other one holds the patterns of a sparse checkout.
    """
    git_dir = pointer.git_dir_of(repository.root)
    copied = (git_dir / "config.worktree", git_dir / "info/sparse-checkout")
    return not (repository.common_dir / "refs/heads").is_dir() or any(map(os.path.lexists, copied))


def _add_by_git(git: Git, path: Path, owner: WorktreeOwner, head: str) -> Path:
    # Git takes a full name of a branch for a commit, and detaches HEAD.
    place = (path, head.removeprefix(_HEADS)) if head.startswith(_HEADS) else ("--detach", path, head)
    config = (*ABSOLUTE_POINTERS, *_UNLOGGED)
    run_git_again(git, "worktree", "add", "--no-checkout", "--lock", *place, config=config)
    registration = pointer.read(path)
    if owner.mark is not None:
        write_mark(registration, owner.mark)
    # `worktree add --reason` is younger than --lock; the file is documented (gitrepository-layout(5)).
    files.replace(registration / "locked", os.fsencode(f"{owner.lock}\n"), sync=False)
    files.replace(path / ".git", pointer_to(registration, path), sync=False)
    return registration


def _make_directory(common_dir: Path, name: str, reason: str) -> Path:
    """Make the directory of a registration, with a number after its name if that is taken, as git does.

    The lock is the first file in it. A ``git worktree prune``, also that of ``git gc``, deletes a directory
    without it. So nothing may take time between the two, and a deleted directory is made again.
    """
    worktrees, name, number = common_dir / "worktrees", _fitting(name), 0
    while True:
        registration = worktrees / f"{name}{number or ''}"
        try:
            registration.mkdir()
            _lock_or_remove(registration, reason)
        except FileExistsError:
            number += 1
        except FileNotFoundError:  # no registration yet: git removes the parent with the last one
            worktrees.mkdir(exist_ok=True)
            shared = stat.S_IMODE(common_dir.stat().st_mode)
            # git-config(1): core.sharedRepository, for which git sets this bit. Else the umask decides.
            if shared & stat.S_ISGID and stat.S_IMODE(worktrees.stat().st_mode) != shared:
                worktrees.chmod(shared)
        else:
            return registration


def _fitting(name: str) -> str:
    """Return a name that fits into the names of refs (git-check-ref-format(1))."""
    return _UNFIT.sub("-", name)


def _lock_or_remove(registration: Path, reason: str) -> None:
    try:
        files.create(registration / "locked", os.fsencode(f"{reason}\n"), sync=False)
    except OSError:
        with contextlib.suppress(OSError):
            registration.rmdir()
        raise


def _write(registration: Path, path: Path, head: str, mark: SessionMark | None) -> None:
    """Write the other files of a registration, and the ``.git`` file of its directory.

    The order counts: without ``gitdir`` git does not see it.
    """
    if others := others_naming(registration, path):
        raise FileExistsError(errno.EEXIST, f"{others[0].name} is registered in its place", os.fspath(path))
    files.create(registration / "commondir", b"../..\n", sync=False)
    if mark is not None:
        write_mark(registration, mark)
    files.create(registration / "HEAD", os.fsencode(f"{head}\n"), sync=False)
    files.create(path / ".git", pointer_to(registration, path), sync=False)
    files.replace(registration / pointer.BACK, pointer.gitdir_content(path), sync=False)


def remove_unfinished(registration: Path) -> None:
    """Remove a registration.

    ``gitdir`` goes first: from then on git does not see it. Its lock goes last: after a kill the next process
    can still see that it is ours.

    Raises:
        OSError: a file cannot be removed.

    """
    (registration / pointer.BACK).unlink(missing_ok=True)
    lock = registration / "locked"
    for entry in [path for path in registration.iterdir() if path != lock]:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    lock.unlink(missing_ok=True)
    registration.rmdir()


def pointers_to(registration: Path, path: Path) -> tuple[bytes, bytes]:
    """Return the possible contents of the ``.git`` file of a new worktree: git's own, and ours."""
    return pointer.git_file_content(registration), pointer_to(registration, path)


def pointer_to(registration: Path, path: Path) -> bytes:
    """Return the content of a worktree's ``.git`` file, which is the same under every mount point."""
    return pointer.git_file_content(os.path.relpath(registration, path))
