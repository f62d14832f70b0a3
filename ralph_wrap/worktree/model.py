"""A worktree of ours, and how git works in it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.git import Git, decode
from ralph_wrap.git.repository import RepositoryCopies
from ralph_wrap.system import files
from ralph_wrap.worktree.ownership import WorktreeOwner

EXCLUDES = "ralph-wrap-exclude"
"""In a registration: the exclude file of a worktree with linked directories."""

LINKS = "ralph-wrap-links"
"""In a registration: the linked directories, one a line."""


ObjectStamp = tuple[str, int, int, int, int]
"""Name, device, inode and both times of a directory with objects."""

ObjectStamps = tuple[ObjectStamp, ...]
"""The same of each directory with objects."""


class LinkedWorktree(NamedTuple):
    """A worktree that ralph-wrap made, or a clone, seen from its replica.

    Attributes:
        path: its directory, resolved.
        registration: its directory in the repository, ``.git/worktrees/<name>``.
        common_dir: the repository.
        branch: the branch that was checked out in it.
        base: the commit that it started from.
        branch_created: the branch did not exist before.
        config: configuration about the file system, read before an agent could change it.
        warm: it comes from the pool.
        owner: the lock and the mark that its registration must have for a removal; ``None``: never remove it.
        clone: it is a clone, and the repository is its replica (see ``worktree.create.replica``).
        objects: the directories with the objects of the repository, before an agent worked in the worktree;
            ``None`` if that is unknown.
        inode: of its directory, when an agent began to work there; 0 if that is unknown.
        born: when that directory was made, in nanoseconds since the epoch; 0 if that is unknown.

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
    clone: bool = False
    objects: ObjectStamps | None = None
    inode: int = 0
    born: int = 0

    @property
    def copies(self) -> RepositoryCopies | None:
        """The repositories of the submodules of a clone, in its replica; ``None`` for a worktree."""
        return RepositoryCopies(self.path / ".git", self.registration) if self.clone else None

    def git(self, git: Git, directory: Path | None = None) -> Git:
        """Return git for this worktree, even if its ``.git`` file names another repository now.

        It reads which links git must not see, so a value from before the agent ran may hide work.

        Arguments:
            git: git in the repository.
            directory: its directory, if it has been moved.

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
    """Return arguments that hide the links of a worktree from git.

    If one of them is not a link any more, git hides none: an agent may have put its work there.

    Arguments:
        registration: ``.git/worktrees/<name>``.
        top: the worktree's directory.

    """
    path = registration / EXCLUDES
    try:
        links = decode(files.read(registration / LINKS)).splitlines()
    except OSError:
        return ()
    if not path.is_file() or not all((top / link).is_symlink() for link in links):
        path = Path(os.devnull)  # this overrides the worktree's own configuration
    return ("-c", f"core.excludesFile={path}")


class NameForm(NamedTuple):
    """The form of the names of one kind of worktree: its directory and its registration have the same name.

    Attributes:
        kind: the first word of each name.

    """

    kind: str

    @property
    def pattern(self) -> str:
        """A pattern of ``fnmatch`` that matches all these names, and some others."""
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
