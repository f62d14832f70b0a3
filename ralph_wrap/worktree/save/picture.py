"""What the files of a worktree would be if they were committed now, for a look at a session that runs.

Nothing is saved, and neither the worktree nor the repository changes: git writes the new objects to a
directory of their own, which goes after the look.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from ralph_wrap.git import Git, read_head
from ralph_wrap.git.quarantine import borrow
from ralph_wrap.git.scratch import private_directory
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.inspect import look
from ralph_wrap.worktree.save.trees import write_trees

_NAME = "ralph-wrap-picture-"


class Picture(NamedTuple):
    """The files of a worktree at one moment.

    Attributes:
        objects: git in a shadow git directory that also has the objects of these files.
        head: the commit at HEAD of the worktree.
        tree: object id of the tree of the files.
        missing: one line for each part that is not in it.

    """

    objects: Git
    head: str
    tree: str
    missing: tuple[str, ...]


@contextlib.contextmanager
def pictured(worktree: LinkedWorktree, git: Git, objects: Git) -> Iterator[Picture | None]:
    """Yield the files of a worktree; ``None`` if it has no commit.

    Arguments:
        worktree: the worktree; an agent may work in it meanwhile.
        git: git at the repository.
        objects: git in a shadow git directory of this repository.

    Raises:
        GitError: git cannot read the worktree.
        OSError: a file cannot be read, or there is no room for the objects.

    """
    with contextlib.ExitStack() as stack:
        outside = (worktree.path, worktree.common_dir)
        directory = private_directory(stack, git.env, outside, _NAME)
        apart = directory / "objects"
        borrow(apart, worktree.common_dir / "objects")
        inside = worktree.git(git)
        scratch = inside._replace(index_file=directory / "index", quarantine=apart)
        head, missing = read_head(inside), list[str]()
        if head.commit is None:
            yield None
            return
        status, _ = look(worktree, inside, scratch, missing, ())
        trees = write_trees(worktree, scratch, head, status, missing)
        yield Picture(objects._replace(objects=apart), head.commit, trees.tree, tuple(missing))
