"""Warm worktrees for a session: one at its start, what is kept at its end, and more for the next one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import git
from ralph_wrap.state import project
from ralph_wrap.system import process

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from ralph_wrap.config import Settings
    from ralph_wrap.git import Git, Repository
    from ralph_wrap.state.project import Project
    from ralph_wrap.worktree.layout import Layout
    from ralph_wrap.worktree.warm import Warm


class Supply(NamedTuple):
    """What a session and the pool of its project have to do with each other.

    Attributes:
        settings: of the session.
        place: the project.
        where: git at the top level of its checkout.
        layout: what of the repository its worktree holds.
        session: its id.
        environ: our environment.

    """

    settings: Settings
    place: Project
    where: Git
    layout: Layout
    session: str
    environ: Mapping[str, str]

    @property
    def pool(self) -> Path | None:
        """Where there may be a warm worktree, which has every file, and none of another project's."""
        layout, settings = self.layout, self.settings
        fits = layout.sparse is None and not {*layout.links} & {*settings.pool_keep}
        wanted = settings.pool and fits and self.place.root == self.place.checkout
        return self.place.root / project.POOL if wanted else None

    def choose(
        self, repository: Repository, base: str, beside: Path, branch: str, meanwhile: Callable[[], object]
    ) -> Warm | None:
        """Return a warm worktree that the session can have, ``None`` if there is none.

        Arguments:
            repository: the project's.
            base: the commit that a new branch starts at.
            beside: the directory into which it will be moved; made if it is missing.
            branch: of the session.
            meanwhile: called while git looks.

        Raises:
            OSError: the directory cannot be made.

        """
        if self.pool is None:
            return None
        from ralph_wrap.worktree.warm import choose  # noqa: PLC0415 -- for those who have a pool

        beside.mkdir(parents=True, exist_ok=True)
        ref = f"refs/heads/{branch}"
        return choose(
            self.where,
            repository,
            self.pool,
            base=git.refs(self.where, ref).get(ref, base) if self.settings.branch else base,
            beside=beside,
            keep=self.settings.pool_keep,
            meanwhile=meanwhile,
        )

    def reuse(self, directory: Path, ignored: Collection[str]) -> None:
        """Keep for a later worktree what the settings say.

        Arguments:
            directory: of the session's worktree, which is none any more.
            ignored: what git ignored there; a whole directory ends with a slash.

        Raises:
            OSError: it cannot be moved.

        """
        if self.pool and self.settings.pool_keep:
            from ralph_wrap.worktree.pool.maintenance import keep  # noqa: PLC0415 -- for those who have a pool

            keep(directory, self.pool, self.session, self.settings.pool_keep, ignored)

    def refill(self) -> None:
        """Have the pool filled, in the background.

        Raises:
            OSError: that cannot be started.

        """
        if self.pool:
            # -P: no module that stands in the project may be run.
            words = (sys.executable, "-P", "-m", "ralph_wrap", "pool", "--fill")
            environ = {name: value for name, value in self.environ.items() if not name.startswith("RALPH_")}
            process.detach(words, cwd=self.place.root, env={**environ, process.OWN_COMMAND: "1"})
