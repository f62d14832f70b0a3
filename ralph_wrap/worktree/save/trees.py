"""A picture of what is in a worktree and not in its HEAD, as trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.git import commit_tree, stage_all, tree_of, write_tree
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.worktree.save.index import add_what_can_be, copy_index, not_in_index, resolve, unlock

if TYPE_CHECKING:
    from ralph_wrap.git import Git, Status
    from ralph_wrap.worktree.model import LinkedWorktree

_ATTEMPTS = 3  # at a picture of files that somebody goes on writing
_NAMED = 3  # files that a problem names; the others are counted


class WorktreeTrees(NamedTuple):
    """What was in a worktree.

    Attributes:
        head: the commit at HEAD, if there is one.
        head_tree: its tree.
        tree: of the files on disk that are not ignored.
        index_tree: of what was staged.

    """

    head: str | None
    head_tree: str | None
    tree: str
    index_tree: str

    @property
    def shows_head(self) -> bool:
        """Nothing is uncommitted."""
        return self.tree == self.head_tree == self.index_tree

    @property
    def trees(self) -> list[str]:
        """The trees of its commit and of that commit's parents."""
        head = [self.head_tree] if self.head_tree else []
        return [self.tree, *head, *([self.index_tree] if self.index_tree != self.tree else [])]

    def commit(self, git: Git, message: str, session: str) -> str:
        """Make a commit of it on top of HEAD; an index that differs is its second parent, as in a stash.

        Raises:
            GitError: that fails.

        """
        parents = [self.head] if self.head else []
        if self.index_tree != self.tree:
            staged = commit_tree(git, self.index_tree, parents, f"ralph: index of session {session}\n")
            parents = [*parents, staged]
        return commit_tree(git, self.tree, parents, message)


def take_picture(
    worktree: LinkedWorktree, scratch: Git, head: str | None, status: Status, problems: list[str]
) -> WorktreeTrees:
    """Write the trees of what is in a worktree.

    Arguments:
        worktree: which one.
        scratch: git in it with a copy of its index, which is made if it is not there yet.
        head: the commit at HEAD.
        status: what is uncommitted.
        problems: gets a line for what cannot be stored.

    Raises:
        GitError: a tree cannot be written.
        OSError: the index cannot be copied.

    """
    copy_index(worktree, scratch)
    if status.unmerged:
        resolve(scratch)
    index_tree = write_tree(scratch)
    for _ in range(_ATTEMPTS):
        failure = stage_all(scratch, exclude=status.nested)
        unlock(scratch)
        left = not_in_index(scratch)
        if failure is not None:
            add_what_can_be(scratch, left)
            left = not_in_index(scratch)
        tree = write_tree(scratch)
        if not left:
            break
    else:
        reason = failure.message if failure else "still being written"
        names = ", ".join(left[:_NAMED])
        problems.append(f"{counted(len(left), 'file')} cannot be saved ({names}): {reason}")
    return WorktreeTrees(head, tree_of(scratch, head) if head else None, tree, index_tree)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
