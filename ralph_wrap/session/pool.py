"""Warm worktrees of a session: take one at its start, return its files at the end, and refill the pool."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.config import PoolSettings
from ralph_wrap.config.authority import IMPLIES
from ralph_wrap.git import Repository, list_refs
from ralph_wrap.state.project import POOL, Project
from ralph_wrap.system import process
from ralph_wrap.worktree import warm
from ralph_wrap.worktree.layout import WorktreeLayout
from ralph_wrap.worktree.pool import maintenance
from ralph_wrap.worktree.warm import WarmWorktree


class SessionPool(NamedTuple):
    """Connects a session with the pool of its project.

    Attributes:
        settings: of the session.
        layout: the files of the repository that the worktree contains.
        session: id of the session.

    """

    settings: PoolSettings
    project: Project
    layout: WorktreeLayout
    session: str

    @property
    def pool(self) -> Path | None:
        """Directory of the pool; ``None`` if the session needs only some files, or has no pool."""
        layout, settings = self.layout, self.settings
        fits = layout.sparse is None and not {*layout.links} & {*settings.pool_keep}
        wanted = settings.pool and fits and not self.project.is_nested
        return self.project.root / POOL if wanted else None

    def choose(
        self,
        repository: Repository,
        base: str,
        beside: Path,
        branch: str,
        *,
        continued: bool,
    ) -> WarmWorktree | None:
        """Return a warm worktree for the session, ``None`` if there is none.

        Arguments:
            repository: the project's.
            base: the commit that a new branch starts at.
            beside: the directory to move the worktree to; created if it is missing.
            branch: branch of the session.
            continued: the branch may exist already.

        Raises:
            OSError: the directory cannot be created.

        """
        if self.pool is None:
            return None
        beside.mkdir(parents=True, exist_ok=True)
        ref = f"refs/heads/{branch}"
        return warm.choose(
            self.project.git,
            repository,
            self.pool,
            base=list_refs(self.project.git, ref).get(ref, base) if continued else base,
            beside=beside,
            keep=self.settings.pool_keep,
        )

    def reuse(self, directory: Path, ignored: Collection[str]) -> None:
        """Keep files for a later worktree, as the settings demand.

        Arguments:
            directory: the former worktree of the session; git does not know it any more.
            ignored: its ignored paths; a whole directory ends with a slash.

        Raises:
            OSError: a file cannot be moved.

        """
        if self.pool and self.settings.pool_keep:
            maintenance.keep(directory, self.pool, self.session, self.settings.pool_keep, ignored)

    def refill(self) -> None:
        """Fill the pool in a background process.

        Raises:
            OSError: the process cannot be started.

        """
        if self.pool:
            # -P: Python must not import modules from the project.
            words = (sys.executable, "-P", "-m", "ralph_wrap", "pool", "--fill")
            environ = {
                name: value
                for name, value in self.project.environ.items()
                if not name.startswith("RALPH_") or name == IMPLIES
            }
            process.detach(words, cwd=self.project.main, env={**environ, process.OWN_COMMAND: "1"})
