"""Keep the pool of warm worktrees filled.

One process at a time holds the lock on the pool's directory, and does this:

1. remove unfinished worktrees, which a kill left;
2. make missing worktrees: register each at once, and check it out at low priority;
3. remove surplus worktrees, if no process has worked in them;
4. move directories that sessions left (``pool_keep``) into warm worktrees that lack them.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.config import PoolSettings
from ralph_wrap.errors import (
    GitError,
    IsolationError,
    NotARepositoryError,
    RalphError,
    RefusedError,
    no_commit,
)
from ralph_wrap.git import Repository, resolve_commit, run_git
from ralph_wrap.git.safe.filters import require_same_files
from ralph_wrap.state.project import POOL, RUN, Project, prepare_root
from ralph_wrap.state.registry import Registry
from ralph_wrap.system import files
from ralph_wrap.system.log import current, get_logger
from ralph_wrap.system.text import command
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.pool import maintenance
from ralph_wrap.worktree.trash import new_name
from ralph_wrap.worktree.warm import WarmWorktree, has_unchanged_files, in_pool

log = get_logger()


class PoolEntry(NamedTuple):
    """A warm worktree as ``ralph-wrap pool`` lists it.

    Attributes:
        path: its directory.
        commit: the commit that is checked out; ``None`` if it is unfinished.
        ready: it is checked out, and no git command changed it; a session checks its files when it takes it.

    """

    path: str
    commit: str | None
    ready: bool


class ProjectPool(NamedTuple):
    """The pool of a project.

    Attributes:
        settings: the settings of the configuration file.

    """

    project: Project
    repository: Repository
    settings: PoolSettings

    @classmethod
    def of(cls, project: Project, settings: PoolSettings) -> ProjectPool:
        """Return the pool of a project; its directory may not exist yet.

        Raises:
            RalphError: there is no repository.

        """
        if project.repository is None:
            raise project.obstacle or NotARepositoryError(
                f"{project.root} is not in a git repository", "git init"
            )
        git = project.git._replace(cwd=project.main)  # not in a session's worktree, whose HEAD is its own
        return cls(project._replace(git=git), project.repository, settings)

    @property
    def directory(self) -> Path:
        """The directory of the warm worktrees."""
        return self.project.root / POOL

    def entries(self) -> list[PoolEntry]:
        """Return the worktrees in the pool."""
        return [PoolEntry(os.fspath(warm.path), warm.commit, warm.is_untouched()) for warm in self._warm()]

    def fill(self) -> bool:
        """Make missing worktrees and remove surplus ones; return ``False`` if another process does so.

        Raises:
            IsolationError: the repository has no commit, or its checkout is sparse.
            GitError: a worktree cannot be made.
            RalphError: the pool's directory cannot be used.

        """
        try:
            return self._fill()
        except OSError as error:
            raise RalphError(
                f"cannot fill the pool {self.directory}: {error.strerror or error}",
                "it must be a writable directory, on a disk with free space",
            ) from error

    def _fill(self) -> bool:
        prepare_root(self.project)
        home = Registry(self.project.root / RUN)
        home.prepare()
        self.directory.mkdir(exist_ok=True)
        if self.directory.is_symlink():
            raise OSError(errno.ELOOP, "it is a symlink", str(self.directory))
        # A session that takes one meanwhile finds the lock held at its end, and leaves the filling to us.
        filled = False
        while (lock := files.try_lock(self.directory)) is not None:
            try:
                ready = self._make_and_remove(home)
            finally:
                current().progress("")
                lock.release()
            filled = True
            if all(os.path.lexists(warm.path) for warm in ready):
                break
        return filled

    def _make_and_remove(self, home: Registry) -> list[WarmWorktree]:
        """Make missing worktrees, remove surplus ones, and return those that were there at that time."""
        self._finish_what_was_killed(home.trash)
        ready = [warm for warm in self._warm() if self._is_ready(warm)]
        for missing in range(len(ready), self.settings.pool):
            ready.append(self._add(home.trash))
            current().progress(f"pool: {missing + 1} of {self.settings.pool}")
        for warm in ready[self.settings.pool :]:
            self._remove(warm, home.trash)
        self._give(ready[: self.settings.pool], home.trash)
        return ready[: self.settings.pool]

    def _warm(self) -> list[WarmWorktree]:
        return in_pool(self.repository.common_dir, self.directory)

    def _is_ready(self, warm: WarmWorktree) -> bool:
        """Return whether a session may take it; log a warning if a process has worked in it."""
        if warm.commit is None:  # its removal failed, which is already logged
            return False
        try:
            if warm.is_untouched() and has_unchanged_files(
                warm, warm.git(self.project.git, self.repository), self.settings.pool_keep
            ):
                return True
        except (GitError, OSError) as error:
            if warm.path.is_dir():  # otherwise a session has just taken it
                self._warn_changed(warm, str(error))
            return False
        self._warn_changed(warm, "a process has worked in it")
        return False

    def _commit(self) -> str:
        sparse = run_git(self.project.git, "config", "--bool", "--get", "core.sparseCheckout", accept=(0, 1))
        if sparse.stdout == b"true\n":
            raise IsolationError("the checkout is sparse, and a warm worktree holds all files", "pool = 0")
        if commit := resolve_commit(self.project.git, "HEAD"):
            require_same_files(self.project.git, self.repository, commit)
            return commit
        raise no_commit(self.repository.root)

    def _add(self, trash: Path) -> WarmWorktree:
        commit = self._commit()
        unfinished = maintenance.make(self.project.git, self.repository, self.directory, commit)
        try:
            ready = maintenance.check_out(unfinished, self.project.git, self.repository, commit)
        except (GitError, OSError):
            self._give_up(unfinished, trash)
            raise
        if not ready.is_untouched():  # otherwise each fill would add one more
            raise RalphError(
                f"{ready.path} changed while it was made", "please report this with git's version"
            )
        log.event("pool.filled", path=os.fspath(ready.path), commit=commit)
        return ready

    def _finish_what_was_killed(self, trash: Path) -> None:
        with repository_lock(self.repository.common_dir):
            for path in maintenance.tidy(self.repository.common_dir, self.directory, trash):
                log.warning(
                    "pool.unknown",
                    f"ralph-wrap did not make {path}, and leaves it there",
                    f"to move it away: {command('mv', path, '.')}",
                )
            maintenance.drop_refs(self.project.git)
        for warm in self._warm():
            if warm.commit is None:
                self._give_up(warm, trash)

    def _give_up(self, unfinished: WarmWorktree, trash: Path) -> None:
        try:
            maintenance.give_up(unfinished, self.project.git, self.repository, trash, new_name())
        except (RefusedError, GitError, OSError) as error:
            self._warn_changed(unfinished, str(error))

    def _remove(self, warm: WarmWorktree, trash: Path) -> None:
        try:
            maintenance.remove(
                warm, self.project.git, self.repository, trash, new_name(), self.settings.pool_keep
            )
        except (RefusedError, GitError, OSError) as error:
            if warm.path.is_dir():  # otherwise a session has just taken it
                self._warn_changed(warm, str(error))
        else:
            log.event("pool.shrunk", path=os.fspath(warm.path))

    def _warn_changed(self, warm: WarmWorktree, reason: str) -> None:
        log.warning(
            "pool.changed",
            f"{warm.path} is kept, and no session gets it: {reason}",
            "save its files, then: " + command("git", "worktree", "remove", "--force", "--force", warm.path),
        )

    def _give(self, ready: list[WarmWorktree], trash: Path) -> None:
        """Move directories that sessions left into warm worktrees that lack them, and delete the rest."""
        names = self.settings.pool_keep
        sources = maintenance.kept(self.directory)
        lacking = [warm for warm in ready if not all(os.path.lexists(warm.path / name) for name in names)]
        for warm, source in zip(lacking, sources, strict=False):
            with repository_lock(self.repository.common_dir):
                if warm.is_untouched():
                    maintenance.give(warm, self.project.git, self.repository, source, names)
        for source in sources:
            maintenance.discard_kept(source, trash / new_name())
