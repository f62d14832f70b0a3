"""A branch in a worktree of its own for a block of code; with ``cleanup`` the block then removes it.

A block reuses the worktree at its path, or the one that has the branch. It never uses the checkout in which
the user works. It never uses the worktree of a session, because the session removes it at its end. A block
removes only a worktree that it made itself, and only if no work is lost.

Several threads, tasks and processes may enter blocks of the same branch at once. A lock lets one at a time
find or make the worktree, so that the others find it complete. Each block then holds a shared lock on the
worktree's directory, so that no other block removes it. Both locks are ``flock(2)`` on directories, the first
on the repository's ``objects``. They need no new file, and git ignores them.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, Self, TypeVar

from ralph_wrap.errors import IsolationError, RalphError
from ralph_wrap.interfaces.api.functions import make, remove
from ralph_wrap.interfaces.api.location import RepositoryLocation, location_of, require_branch_name, resolved
from ralph_wrap.interfaces.api.reuse import find
from ralph_wrap.state.project import WORKTREES
from ralph_wrap.system import files

State = Literal["pending", "ready", "error", "closed"]

_T = TypeVar("_T")

_PATIENCE = 600.0  # seconds to wait for other blocks, which may check out a large repository

_open: ContextVar[tuple[Worktree, ...]] = ContextVar("ralph_wrap.worktrees", default=())


def current_worktree() -> Worktree | None:
    """Return the worktree of the innermost open block, ``None`` outside of all blocks (``contextvars``).

    A task or thread that outlives its block still gets the worktree of the block. Otherwise it would work in
    the user's own files.
    """
    return next(reversed(_open.get()), None)


class Worktree:
    """A branch in a worktree of its own, for the length of a ``with`` or ``async with`` block.

    ::

        with Worktree("feature-auth", base="main") as tree:
            run_agent("Implement it", cwd=tree.path / "src")
            run_agent("Review it")  # in tree.path

    Arguments:
        branch: the branch to check out; created if it does not exist.
        base: the start of a new branch; by default HEAD of the project's checkout.
        path: its directory, relative to the project; by default ``.ralph/worktrees/<branch>``, with a hyphen
            for each ``/`` of the name.
        cleanup: remove the worktree at the end if this block made it and no work would be lost. A failed
            removal is a warning. The branch stays, ignored files are deleted.
        on_ready: called with the path.
        on_error: called with the error that prevented the worktree, before it is raised.
        project: a directory of the project; by default the current one.

    Attributes:
        branch: the branch name as given.
        state: ``pending``, ``ready`` within the block, ``closed`` after it, ``error`` if it could not begin.

    Raises:
        UsageError: the branch or the path is invalid.
        NotFoundError: the base does not exist.
        ConflictError: something else is at the path.
        BranchBusyError: the branch is checked out in a worktree that a block must not use.
        RalphError: no worktree is possible here; nothing is left of the attempt.

    """

    def __init__(
        self,
        branch: str,
        *,
        base: str | None = None,
        path: str | os.PathLike[str] | None = None,
        cleanup: bool = False,
        on_ready: Callable[[Path], object] | None = None,
        on_error: Callable[[Exception], object] | None = None,
        project: str | os.PathLike[str] | None = None,
    ) -> None:
        self.branch = branch
        self.state: State = "pending"
        self._base = base
        self._path_argument = path
        self._cleanup = cleanup
        self._on_ready = on_ready
        self._on_error = on_error
        self._project = project
        self._location: RepositoryLocation | None = None
        self._path: Path | None = None
        self._made = False
        self._lock = -1
        self._kept: str | None = None

    @property
    def path(self) -> Path:
        """Its resolved directory.

        Raises:
            RuntimeError: the program has not entered the block yet.

        """
        if self._path is None:
            raise RuntimeError("a worktree has no path before the program enters its block")
        return self._path

    def __enter__(self) -> Self:
        self._begin()
        try:
            self._open()
            self._enter()
        except BaseException as error:
            self._close()
            self._warn()
            self._fail(error)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        self._close()
        self._warn()

    async def __aenter__(self) -> Self:
        self._begin()
        try:
            await _in_thread(self._open)
            self._enter()
        except BaseException as error:
            try:
                await _in_thread(self._close)
            finally:
                self._warn()
                self._fail(error)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave()
        try:
            await _in_thread(self._close)
        finally:
            self._warn()

    def _begin(self) -> None:
        if self.state == "ready":
            raise RuntimeError(f"the program is already in the block of {self.branch}")
        self.state, self._path, self._made, self._kept = "pending", None, False, None

    def _open(self) -> None:
        self._location = location = location_of(self._project)
        require_branch_name(location.project.git, self.branch)
        path = self._wanted_path(location)
        try:
            with _in_turn(location):
                existing = find(location, self.branch, path, exact=self._path_argument is not None)
                self._path = existing or make(location, path, self.branch, self._base, continued=True)
                self._made = existing is None
                self._lock = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            raise IsolationError(f"no worktree for {self.branch}: {error}") from error

    def _wanted_path(self, location: RepositoryLocation) -> Path:
        if self._path_argument is not None:
            return resolved(self._path_argument, location.directory)
        worktrees = location.project.root / WORKTREES
        if link := next(
            (directory for directory in (worktrees.parent, worktrees) if directory.is_symlink()), None
        ):
            raise IsolationError(
                f"{link} is a symlink, which is not followed", "replace it by a directory, or pass a path"
            )
        return worktrees / self.branch.replace("/", "-")

    def _enter(self) -> None:
        if self._on_ready is not None:
            self._on_ready(self.path)
        _open.set((*_open.get(), self))
        self.state = "ready"

    def _leave(self) -> None:
        self.state = "closed"
        _open.set(tuple(tree for tree in _open.get() if tree is not self))

    def _fail(self, error: BaseException) -> None:
        self.state = "error"
        if self._on_error is not None and isinstance(error, Exception):
            self._on_error(error)

    def _close(self) -> None:
        try:
            if self._cleanup and self._made and self._location is not None:
                self._remove(self._location)
        finally:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def _remove(self, location: RepositoryLocation) -> None:
        try:
            with _in_turn(location):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(location, self.path, force=False)
        except BlockingIOError:
            self._kept = f"another block uses {self.path}"
        except (RalphError, OSError) as error:
            self._kept = str(error)

    def _warn(self) -> None:
        if self._kept is not None:
            warnings.warn(f"worktree of {self.branch} kept: {self._kept}", RuntimeWarning, stacklevel=3)


def _in_turn(location: RepositoryLocation) -> AbstractContextManager[int]:
    return files.locked_directory((location.repository.common_dir / "objects").resolve(), _PATIENCE)


async def _in_thread(work: Callable[[], _T]) -> _T:
    """Run in a thread to the end, even if the task is cancelled: the block must know what the thread made."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # otherwise asyncio logs that the exception was never retrieved
        raise cancelled
    return task.result()
