"""A worktree of ours, and how git works in it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.git import decode
from ralph_wrap.system import files
from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from ralph_wrap.git import Git
    from ralph_wrap.worktree.ownership import WorktreeOwner

EXCLUDES = "ralph-wrap-exclude"
"""In a registration: the exclude file of a worktree with linked directories."""

LINKS = "ralph-wrap-links"
"""In a registration: those directories, one a line."""


class LinkedWorktree(NamedTuple):
    """A worktree that we made.

    Attributes:
        path: its directory, resolved.
        registration: its directory in the repository, ``.git/worktrees/<name>``.
        common_dir: the repository.
        branch: what was checked out in it.
        base: the commit it started from.
        branch_created: the branch did not exist before.
        config: what the repository said of its file system before an agent could change that.
        warm: it was taken from the pool.
        owner: what its registration must say if it is to be removed; ``None`` if nobody may remove it.
        stays: why it is not removed even then.

    """

    path: Path
    registration: Path
    common_dir: Path
    branch: str
    base: str
    branch_created: bool
    config: tuple[str, ...]
    warm: bool = False
    owner: WorktreeOwner | None = None
    stays: str | None = None

    def git(self, git: Git, directory: Path | None = None) -> Git:
        """Return git for this worktree, whatever its ``.git`` file says by now.

        Arguments:
            git: git in the repository.
            directory: where its directory is, if that has been moved.

        """
        top = directory or self.path
        return git._replace(
            cwd=top,
            git_dir=self.registration,
            common_dir=self.common_dir,
            work_tree=top,
            config=(*self.config, *_excludes(self.registration, top)),
        )


def _excludes(registration: Path, top: Path) -> tuple[str, ...]:
    """Return arguments by which git does not see the links of a worktree.

    Nothing is hidden where something else is in the place of one: an agent may have put its work there.

    Arguments:
        registration: ``.git/worktrees/<name>``.
        top: where the worktree's directory is.

    """
    path = registration / EXCLUDES
    try:
        links = decode(files.read(registration / LINKS)).splitlines()
    except OSError:
        return ()
    if not path.is_file() or not all((top / link).is_symlink() for link in links):
        path = Path(os.devnull)  # whatever the worktree's own configuration says
    return ("-c", f"core.excludesFile={path}")


class NameForm(NamedTuple):
    """The form of the names of one kind of worktree: its directory and its registration have the same name.

    Attributes:
        kind: the first word of each name.

    """

    kind: str

    @property
    def pattern(self) -> str:
        """A pattern of ``fnmatch`` that fits all these names, and some others."""
        return f"{self.kind}-*"

    def new(self) -> str:
        """Return a name that no other worktree has."""
        return f"{self.kind}-{os.urandom(4).hex()}"

    def fits(self, name: str) -> bool:
        """Return whether a name has this form."""
        return re.fullmatch(f"{self.kind}-[0-9a-f]{{8}}", name) is not None


WARM = NameForm("warm")
"""The names of worktrees in the pool."""

TEMPORARY = NameForm("land")
"""The names of temporary worktrees, in which a merge is tried."""
