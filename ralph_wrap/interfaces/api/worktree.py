"""A branch checked out for as long as a block of code lasts, and longer unless it is to be cleaned up.

What a block finds it uses: the worktree at the path, or the one that has the branch. Never the checkout that
the user works in, nor a worktree of a session, which would go when that ends. Only what the block has made
may be removed at its end, and only if nothing is lost by that.

Several blocks may want the same branch at once, in threads, tasks, processes: they look and make in turn, so
one makes the worktree and the others find it whole. Each holds a shared lock on the worktree's directory
meanwhile, so that none removes it under the others. Both locks are ``flock(2)`` on directories, the first on
the repository's ``objects``: no file is made, and git takes no notice.
"""

from __future__ import annotations

import fcntl
import os
import warnings
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from ralph_wrap.errors import IsolationError, RalphError
from ralph_wrap.interfaces.api.functions import make, remove
from ralph_wrap.interfaces.api.location import Site, require_branch_name, resolved, site_of
from ralph_wrap.interfaces.api.reuse import find
from ralph_wrap.state import project
from ralph_wrap.system import files
from ralph_wrap.worktree.loading import load_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    State = Literal["pending", "ready", "error", "closed"]

_T = TypeVar("_T")

_PATIENCE = 600.0  # seconds to wait for others, who may check out a large repository

_open: ContextVar[tuple[Worktree, ...]] = ContextVar("ralph_wrap.worktrees", default=())


def current_worktree() -> Worktree | None:
    """Return the worktree of the innermost block that is open, ``None`` outside of all (``contextvars``).

    A task or thread that outlives the block it was started in still gets that one: it must not come to work
    in the user's own files.
    """
    return next(reversed(_open.get()), None)


class Worktree:
    """A branch in a worktree of its own, for the length of a ``with`` or ``async with`` block.

    ::

        with Worktree("feature-auth", base="main") as tree:
            run_agent("Implement it", cwd=tree.path / "src")
            run_agent("Review it")  # in tree.path

    Arguments:
        branch: what is checked out; made if it is not there.
        base: what a new branch starts from; normally HEAD of the project's checkout.
        path: where, relative to the project; normally ``.ralph/worktrees/<branch>``, each ``/`` in the name
            a hyphen there.
        cleanup: remove the worktree at the end if this block made it and nothing would be lost; if it cannot
            be removed, that is a warning. The branch stays, ignored files go.
        on_ready: called with the path.
        on_error: called with what has prevented the worktree, before that is raised.
        project: a directory of the project; normally the current one.

    Attributes:
        branch: as given.
        state: ``pending``, ``ready`` within the block, ``closed`` after it, ``error`` if it could not begin.

    Raises:
        UsageError: branch or path cannot be that.
        NotFoundError: there is no such base.
        ConflictError: something else is at the path.
        BranchBusyError: the branch is checked out where it is not for us to work.
        RalphError: no worktree can be had here; nothing is left of the attempt.

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
        self._asked_path = path
        self._cleanup = cleanup
        self._on_ready = on_ready
        self._on_error = on_error
        self._project = project
        self._site: Site | None = None
        self._path: Path | None = None
        self._made = False
        self._lock = -1
        self._kept: str | None = None

    @property
    def path(self) -> Path:
        """Its directory, resolved.

        Raises:
            RuntimeError: the block was not entered.

        """
        if self._path is None:
            raise RuntimeError("a worktree has a path once its block is entered")
        return self._path

    def __enter__(self) -> Self:
        self._begin()
        try:
            self._open()
            self._enter()
        except BaseException as error:
            self._close()
            self._tell()
            self._fail(error)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        self._close()
        self._tell()

    async def __aenter__(self) -> Self:
        self._begin()
        try:
            await _in_thread(self._open)
            self._enter()
        except BaseException as error:
            try:
                await _in_thread(self._close)
            finally:
                self._tell()
                self._fail(error)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave()
        try:
            await _in_thread(self._close)
        finally:
            self._tell()

    def _begin(self) -> None:
        if self.state == "ready":
            raise RuntimeError(f"the block of {self.branch} is entered already")
        self.state, self._path, self._made, self._kept = "pending", None, False, None

    def _open(self) -> None:
        load_all()  # now: while somebody works in the block, another version may be installed
        self._site = site = site_of(self._project)
        require_branch_name(site.where, self.branch)
        path = self._wanted_path(site)
        try:
            with _in_turn(site):
                found = find(site, self.branch, path, exact=self._asked_path is not None)
                self._path = found or make(site, path, self.branch, self._base, continued=True)
                self._made = found is None
                self._lock = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            raise IsolationError(f"no worktree for {self.branch}: {error}") from error

    def _wanted_path(self, site: Site) -> Path:
        if self._asked_path is not None:
            return resolved(self._asked_path, site.directory)
        ours = site.place.root / project.WORKTREES
        if link := next((place for place in (ours.parent, ours) if place.is_symlink()), None):
            raise IsolationError(
                f"{link} is a symlink, which is not followed", "replace it by a directory, or name a path"
            )
        return ours / self.branch.replace("/", "-")

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
            if self._cleanup and self._made and self._site is not None:
                self._remove(self._site)
        finally:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def _remove(self, site: Site) -> None:
        try:
            with _in_turn(site):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(site, self.path, force=False)
        except BlockingIOError:
            self._kept = f"another block works in {self.path}"
        except (RalphError, OSError) as error:
            self._kept = str(error)

    def _tell(self) -> None:
        if self._kept is not None:
            warnings.warn(f"worktree of {self.branch} kept: {self._kept}", RuntimeWarning, stacklevel=3)


def _in_turn(site: Site) -> AbstractContextManager[int]:
    return files.locked_directory((site.repository.common_dir / "objects").resolve(), _PATIENCE)


async def _in_thread(work: Callable[[], _T]) -> _T:
    """Run in a thread, to the end, even if we are cancelled: what was made must not be lost sight of."""
    import asyncio  # noqa: PLC0415 -- slow, and only for those who use it

    task = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # else asyncio complains that nobody has looked at it
        raise cancelled
    return task.result()
