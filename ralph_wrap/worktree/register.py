"""Register a worktree with git, locked against ``git worktree prune``, and usable under every mount point.

The branch of a session is created while another git registers the worktree.
"""

from __future__ import annotations

import contextlib
import os

from ralph_wrap.errors import BranchBusyError
from ralph_wrap.git import (
    ABSOLUTE_POINTERS,
    delete_ref,
    finish_git,
    list_refs,
    pointer,
    run_git,
    run_git_again,
    start_to_create_branch,
    worktree_holding,
)
from ralph_wrap.system import files
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.ownership import SessionMark, write_mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ralph_wrap.git import Git, Repository
    from ralph_wrap.system.process import RunningCommand

_UNLOGGED = ("-c", "core.logAllRefUpdates=false")  # the reflog begins with the work in the worktree
_PATIENCE = 10.0  # seconds for git to create a branch, after another step of the start has failed


class LockedBranch(NamedTuple):
    """A branch, while this process has the lock of the repository.

    Attributes:
        tip: its commit, if it existed before; ``None`` for a new branch.
        creating: git, which may still be creating it; ``None`` if the branch exists.

    """

    tip: str | None
    creating: RunningCommand | None

    def wait(self) -> None:
        """Wait until the branch exists.

        Raises:
            GitError: it exists already, or the name of another branch conflicts with it.

        """
        if self.creating is not None:
            finish_git(self.creating, "update-ref")


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
        return f"refs/heads/{self.name}"

    @contextlib.contextmanager
    def create_own(self, undo: contextlib.ExitStack) -> Iterator[LockedBranch]:
        """Take the lock of the repository, while git creates the branch of a session.

        Its name is new: no other process wants it, and no HEAD names it.

        Arguments:
            undo: gets the step that deletes the branch.

        Raises:
            GitError: git would wait for a FIFO.
            LockedError: another process held the lock all the time.
            OSError: git or the lock cannot be had.

        """
        with self._creating() as creating, contextlib.ExitStack() as lock:
            try:
                lock.enter_context(repository_lock(self.repository.common_dir))
            except OSError:  # LockedError is one
                undo.callback(self._delete_if_created, creating)  # without the lock: no worktree has it
                raise
            undo.callback(self._take_back, creating)
            yield LockedBranch(None, creating)

    @contextlib.contextmanager
    def create_named(self, undo: contextlib.ExitStack, *, continued: bool) -> Iterator[LockedBranch]:
        """Take the lock of the repository, and then create the branch that a user named.

        Arguments:
            undo: gets the step that deletes a created branch.
            continued: the branch may exist already.

        Raises:
            BranchBusyError: the branch is checked out in another worktree.
            GitError: it exists and is not to be continued, or the name of another branch conflicts with it.
            LockedError: another process held the lock all the time.

        """
        with repository_lock(self.repository.common_dir):
            tip = list_refs(self.git, self.ref).get(self.ref) if continued else None
            if tip is None:
                with self._creating() as creating:
                    undo.callback(self._take_back, creating)
                    finish_git(creating, "update-ref")
            elif holder := worktree_holding(self.git, self.ref):
                raise BranchBusyError(
                    f"branch {self.name} is checked out in {holder}",
                    "name another branch, or end what works on it",
                )
            yield LockedBranch(tip, None)

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


def add(git: Git, path: Path, reason: str, *arguments: str | Path, mark: SessionMark | None = None) -> Path:
    """Register a worktree in an empty directory, without a checkout, and return its registration.

    Arguments:
        git: git in the repository; the caller holds its lock.
        path: the directory.
        reason: the reason of the registration's lock, for ``git worktree list``.
        arguments: further arguments of ``git worktree add``.
        mark: the mark of the session; ``None`` for a worktree without one.

    Raises:
        GitError: git refuses.
        OSError: a file cannot be read or written.

    """
    config = (*ABSOLUTE_POINTERS, *_UNLOGGED)
    run_git_again(git, "worktree", "add", "--no-checkout", "--lock", *arguments, config=config)
    registration = pointer.read(path)
    if mark is not None:
        write_mark(registration, mark)
    # `worktree add --reason` is younger than --lock; the file is documented (gitrepository-layout(5)).
    files.replace(registration / "locked", os.fsencode(f"{reason}\n"), sync=False)
    files.replace(path / ".git", pointer_to(registration, path), sync=False)
    return registration


def switch(git: Git, path: Path, registration: Path, branch: str, commit: str) -> None:
    """Have a new worktree with a detached HEAD be on a branch, without a checkout.

    Arguments:
        git: git in the repository; the caller holds its lock.
        path: the directory.
        registration: the result of :func:`add`.
        branch: an existing branch that no other worktree has.
        commit: object id of the branch and of HEAD.

    Raises:
        GitError: git refuses.
        OSError: a file cannot be read or written.

    """
    head = registration / "HEAD"
    if files.read(head) == f"{commit}\n".encode():
        files.replace(head, os.fsencode(f"ref: refs/heads/{branch}\n"), sync=False)
    else:  # HEAD is in a reftable
        run_git(git._replace(cwd=path), "symbolic-ref", "HEAD", f"refs/heads/{branch}", config=_UNLOGGED)


def pointers_to(registration: Path, path: Path) -> tuple[bytes, bytes]:
    """Return the possible contents of the ``.git`` file of a new worktree: git's own, and ours."""
    return pointer.git_file_content(registration), pointer_to(registration, path)


def pointer_to(registration: Path, path: Path) -> bytes:
    """Return the content of a worktree's ``.git`` file, which is the same under every mount point."""
    return pointer.git_file_content(os.path.relpath(registration, path))
