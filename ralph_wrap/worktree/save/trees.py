"""The state of a worktree's files and index, stored as trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, Head, commit_and_parents, commit_tree, read_commit, run_git, tree_of
from ralph_wrap.git.index import write_tree
from ralph_wrap.git.status import Status
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.index import copy_index, may_be_read, reading_anew, resolve, stage_changes
from ralph_wrap.worktree.save.walk import Unreadable

WORK_TITLE = "ralph: saved work of session "
"""The beginning of the message of a commit with the files of a worktree; the session id follows."""

INDEX_TITLE = "ralph: index of session "
"""The beginning of the message of a commit with the index of a worktree; the session id follows."""

SNAPSHOT_TITLE = "ralph: after iteration "
"""The beginning of the message of a snapshot; the iteration and ``of session <session id>`` follow."""

AWAY_TITLE = "ralph: away from its branch, after iteration "
"""The same, if HEAD was not on the branch of the session."""

NO_INDEX = "the index is missing, what was staged in it is not saved"
"""A problem of a save."""

_NAMED = 3  # files that a problem names; it counts the others


class WorktreeTrees(NamedTuple):
    """The trees of a worktree.

    Attributes:
        head: the commit at HEAD, if there is one.
        head_tree: the tree of this commit, if it is known.
        tree: the tree of the files on the disk that are not ignored.
        index_tree: the tree of the index.

    """

    head: str | None
    head_tree: str | None
    tree: str
    index_tree: str

    @property
    def shows_head(self) -> bool:
        """There is no uncommitted work."""
        return self.tree == self.head_tree == self.index_tree

    def trees(self, git: Git) -> list[str]:
        """Return the trees of its commit and of the parents of this commit."""
        head = [self.head_tree or tree_of(git, self.head)] if self.head else []
        return [self.tree, *head, *([self.index_tree] if self.index_tree != self.tree else [])]

    def is_in(self, git: Git, commit: str) -> bool:
        """Return whether a commit that an earlier save has made has the same files, HEAD and index."""
        commits = commit_and_parents(git, commit)
        if not commits or (self.head is not None and self.head not in commits):
            return False
        try:
            return [tree_of(git, found) for found in commits] == self.trees(git)
        except GitError:  # git may have pruned a tree of the earlier save
            return False

    def commit(self, git: Git, message: str, session: str, staged: str | None = None) -> str:
        """Make a commit on top of HEAD; if the index differs, it is the second parent, as in a stash.

        Arguments:
            staged: the commit of the index, if there is one already.

        Raises:
            GitError: git failed.

        """
        parents = [self.head] if self.head else []
        if self.index_tree != self.tree:
            parents.append(staged or self.commit_index(git, session))
        return commit_tree(git, self.tree, parents, message)

    def commit_index(self, git: Git, session: str) -> str:
        """Make the commit of the index.

        Raises:
            GitError: git failed.

        """
        parents = [self.head] if self.head else []
        return commit_tree(git, self.index_tree, parents, f"{INDEX_TITLE}{session}\n")


class SavedState(NamedTuple):
    """HEAD, files and index of a worktree, as saved work or a snapshot has them.

    Attributes:
        head: commit id; ``None`` if there was no commit yet.
        files: tree of the files.
        staged: tree of the index.
        title: the first line of the message.

    """

    head: str | None
    files: str
    staged: str
    title: str = ""


def saved_state(git: Git, saved: str) -> SavedState:
    """Return what a commit of saved work, or a snapshot, has.

    Raises:
        GitError: there is no such commit.

    """
    work = read_commit(git, saved)
    if not work.subject.startswith((WORK_TITLE, SNAPSHOT_TITLE, AWAY_TITLE)):
        return SavedState(saved, work.tree, work.tree, work.subject)  # the last commit of a detached HEAD
    state = SavedState(None, work.tree, work.tree, work.subject)
    for oid in work.parents:
        parent = read_commit(git, oid)
        is_index = parent.subject.startswith(INDEX_TITLE)
        state = state._replace(staged=parent.tree) if is_index else state._replace(head=oid)
    return state


def session_of(git: Git, commit: str) -> str:
    """Return the session id that a commit of our own names in its title; empty if it names none."""
    try:
        return read_commit(git, commit).subject.partition(" of session ")[2]
    except GitError:
        return ""


def write_trees(
    worktree: LinkedWorktree, scratch: Git, head: Head, status: Status, problems: list[str]
) -> WorktreeTrees:
    """Write the trees of a worktree.

    A process may write to the files meanwhile. Whoever removes the worktree looks again, after nobody finds
    it by its path any more.

    Arguments:
        scratch: git in it with a copy of its index, which this function makes if it does not exist.
        head: HEAD of the worktree.
        status: the uncommitted paths.
        problems: gets a line if files cannot be stored.

    Raises:
        GitError: a tree cannot be written.
        OSError: the index cannot be read or copied.

    """
    try:
        copy_index(worktree, scratch)
    except FileNotFoundError:  # after a checkout, a power failure can take it, and an agent at any time
        problems.append(NO_INDEX)
        run_git(scratch, "read-tree", head.commit or "--empty")
    with reading_anew(scratch):
        if status.unmerged:
            resolve(scratch)
        index_tree = write_tree(scratch)
        left, reason = stage_changes(scratch, (*status.unstaged, *status.new), status.nested)
        tree = write_tree(scratch)
    if left:
        problems.append(unsaved_files(worktree, left, reason))
    head_tree = head.tree
    if head_tree is None and head.commit is not None and tree == index_tree:
        head_tree = tree_of(scratch, head.commit)  # otherwise there is uncommitted work, whatever it is
    return WorktreeTrees(head.commit, head_tree, tree, index_tree)


def unsaved_files(worktree: LinkedWorktree, left: Sequence[str], reason: str) -> str:
    """Return the problem of files that git cannot store."""
    problem = f"{counted(len(left), 'file')} cannot be saved ({', '.join(left[:_NAMED])}): {reason}"
    is_closed = not any(may_be_read(worktree.path / path) for path in left)
    return Unreadable(problem) if is_closed else problem


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
