"""Keep the pool of warm worktrees filled.

One process at a time, which holds the lock on the pool's directory:

1. what was killed half-way is taken apart;
2. what is missing is made: registered at once, checked out at low priority;
3. directories that were kept of sessions (``pool_keep``) go to those that lack them;
4. what is too much is removed, if nobody has worked in it.
"""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import git
from ralph_wrap.errors import GitError, IsolationError, NotARepositoryError, RalphError, RefusedError
from ralph_wrap.state import project
from ralph_wrap.state.registry import Registry
from ralph_wrap.system import files
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.pool import maintenance
from ralph_wrap.worktree.warm import holds_nothing, in_pool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ralph_wrap.config import Settings
    from ralph_wrap.git import Git, Repository
    from ralph_wrap.state.project import Project
    from ralph_wrap.system.log import Log
    from ralph_wrap.worktree.warm import Warm


class Entry(NamedTuple):
    """A warm worktree, as it is listed.

    Attributes:
        path: its directory.
        commit: at which it is checked out; ``None`` if it is unfinished.
        ready: it is checked out, and nobody has worked in it with git; files are looked at when it is taken.

    """

    path: str
    commit: str | None
    ready: bool


class Pool(NamedTuple):
    """The pool of a project.

    Attributes:
        place: the project.
        repository: its repository.
        where: git at the top level of its checkout.
        settings: as the configuration file has them.
        told: of everything that happens.

    """

    place: Project
    repository: Repository
    where: Git
    settings: Settings
    told: Log

    @classmethod
    def of(cls, place: Project, environ: Mapping[str, str], settings: Settings, told: Log) -> Pool:
        """Return the pool of a project, which may not be there yet.

        Raises:
            RalphError: there is no repository.

        """
        if place.repository is None:
            raise place.obstacle or NotARepositoryError(
                f"{place.root} is not in a git repository", "git init"
            )
        where = place.git(environ)._replace(cwd=place.root)  # a session's own commits are not for others
        return cls(place, place.repository, where, settings, told)

    @property
    def directory(self) -> Path:
        """Where the warm worktrees are."""
        return self.place.root / project.POOL

    def entries(self) -> list[Entry]:
        """Return what is in the pool."""
        return [Entry(os.fspath(one.path), one.commit, one.is_untouched()) for one in self._warm()]

    def fill(self) -> bool:
        """Make what is missing, and remove what is too much; return whether nobody else was at it.

        Raises:
            IsolationError: the repository has no commit, or its checkout is sparse.
            GitError: a worktree cannot be made.
            RalphError: the pool cannot be had.

        """
        try:
            return self._fill()
        except OSError as error:
            raise RalphError(
                f"the pool {self.directory} cannot be filled: {error.strerror or error}",
                "it must be a directory that can be written, on a disk that is not full",
            ) from error

    def _fill(self) -> bool:
        home = Registry(self.place.root / project.RUN)
        home.prepare()
        self.directory.mkdir(exist_ok=True)
        if self.directory.is_symlink():
            raise OSError(errno.ELOOP, "it is a symlink", str(self.directory))
        if (lock := files.try_lock(self.directory)) is None:
            return False
        try:
            self._finish_what_was_killed(home.trash)
            ready = [one for one in self._warm() if self._is_ready(one)]
            for missing in range(len(ready), self.settings.pool):
                ready.append(self._add(home.trash))
                self.told.progress(f"pool: {missing + 1} of {self.settings.pool}")
            for one in ready[self.settings.pool :]:
                self._remove(one, home.trash)
            self._give(ready[: self.settings.pool], home.trash)
        finally:
            self.told.progress("")
            lock.release()
        return True

    def _warm(self) -> list[Warm]:
        return in_pool(self.repository.common_dir, self.directory)

    def _is_ready(self, one: Warm) -> bool:
        """Tell whether a session may take it, and say so if somebody has worked in it."""
        if one.commit is None:  # it could not be given up, which was told
            return False
        try:
            if one.is_untouched() and holds_nothing(
                one, one.git(self.where, self.repository), self.settings.pool_keep
            ):
                return True
        except (GitError, OSError) as error:
            if one.path.is_dir():  # no session has just taken it
                self._tell_changed(one, str(error))
            return False
        self._tell_changed(one, "somebody has worked in it")
        return False

    def _commit(self) -> str:
        asked = git.run(self.where, "config", "--bool", "--get", "core.sparseCheckout", accept=(0, 1))
        if asked.stdout == b"true\n":
            raise IsolationError("the checkout is sparse, and a warm worktree holds everything", "pool = 0")
        if commit := git.resolve_commit(self.where, "HEAD"):
            return commit
        raise IsolationError("the repository has no commit yet", "git commit --allow-empty -m start")

    def _add(self, trash: Path) -> Warm:
        commit = self._commit()
        made = maintenance.make(self.where, self.repository, self.directory, commit)
        try:
            ready = maintenance.check_out(made, self.where, self.repository, commit)
        except (GitError, OSError):
            self._give_up(made, trash)
            raise
        if not ready.is_untouched():  # or each fill would make one more
            raise RalphError(f"{ready.path} is not as it was made", "please report this, with git's version")
        self.told.event("pool.filled", path=os.fspath(ready.path), commit=commit)
        return ready

    def _finish_what_was_killed(self, trash: Path) -> None:
        with repository_lock(self.repository.common_dir):
            for left in maintenance.tidy(self.repository.common_dir, self.directory, trash):
                self.told.warning(
                    "pool.unknown", f"{left} is not ours: it stays", f"move it to another place: mv {left} ."
                )
            maintenance.drop_refs(self.where)
        for one in self._warm():
            if one.commit is None:
                self._give_up(one, trash)

    def _give_up(self, unfinished: Warm, trash: Path) -> None:
        try:
            maintenance.give_up(unfinished, self.where, self.repository, trash, _name())
        except (RefusedError, GitError, OSError) as error:
            self._tell_changed(unfinished, str(error))

    def _remove(self, one: Warm, trash: Path) -> None:
        try:
            maintenance.remove(one, self.where, self.repository, trash, _name(), self.settings.pool_keep)
        except (RefusedError, GitError, OSError) as error:
            if one.path.is_dir():  # no session has just taken it
                self._tell_changed(one, str(error))
        else:
            self.told.event("pool.shrunk", path=os.fspath(one.path))

    def _tell_changed(self, one: Warm, reason: str) -> None:
        self.told.warning(
            "pool.changed",
            f"{one.path} is kept, and given to no session: {reason}",
            f"save what is in it, then: git worktree remove --force --force {one.path}",
        )

    def _give(self, ready: list[Warm], trash: Path) -> None:
        """Hand on what was kept of sessions, and delete what nobody lacks."""
        names = self.settings.pool_keep
        kept = maintenance.kept(self.directory)
        lacking = [one for one in ready if not all(os.path.lexists(one.path / name) for name in names)]
        for one, source in zip(lacking, kept, strict=False):
            with repository_lock(self.repository.common_dir):
                if one.is_untouched():
                    maintenance.give(one, self.where, self.repository, source, names)
        for source in kept:
            maintenance.discard_kept(source, trash / _name())


def _name() -> str:
    """Return a name for the trash, which is formed like the id of a session."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.urandom(2).hex()}"
