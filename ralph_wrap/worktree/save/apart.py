"""Store the work of a save apart from the repository, and bring it in as one pack that no ``git gc`` deletes.

The order (see :mod:`ralph_wrap.git.quarantine` for the reasons in git):

1. Git stores the files, their trees and their commits apart. It finds there and in the repository what it
   has stored before.
2. All that the session has made since its base goes into one pack, also the commits of its agent: a gc that
   began before a ``git commit`` deletes the objects of this commit as well.
3. Every new object is read back, first with the pack beside the repository, then, when the pack is in it,
   from the repository itself. Nothing is named before: no ref and no reflog ever names a lost commit.
4. The caller makes the refs. The pack keeps its ``.keep`` file as long as the worktree exists, because the
   worktree may be saved again, and then only newer objects need a pack.

If an object is missing or damaged, the save begins again, and stores each file of the worktree once more,
without a look at the repository: a damaged object counts for git as stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, existing_commits, list_refs, run_git, store_blob
from ralph_wrap.git.quarantine import borrow, enter, kept_tips, mend_loose, pack, quarantine
from ralph_wrap.git.read_back import find_damage
from ralph_wrap.git.status import stage_all
from ralph_wrap.worktree.model import LinkedWorktree


class StoreApart:
    """The objects of one attempt of a save.

    Arguments:
        stack: at its end the directory with the objects is removed.
        tree: the worktree or submodule.
        git: git in it.
        owner: the session.
        present: see :func:`present_of`.

    """

    def __init__(
        self,
        stack: contextlib.ExitStack,
        tree: LinkedWorktree,
        git: Git,
        owner: str,
        present: Sequence[str],
    ) -> None:
        self._stack = stack
        self._tree = tree
        self._git = git
        self._objects = tree.common_dir / "objects"
        self._owner = owner
        self._present = present
        self._directory: Path | None = None

    def git(self, git: Git) -> Git:
        """Return git that stores new objects apart.

        Raises:
            OSError: the directory for them cannot be made.

        """
        if self._directory is None:
            self._directory = self._stack.enter_context(quarantine(self._objects, self._owner))
        borrow(self._directory, self._objects)
        return git._replace(quarantine=self._directory)

    def seeing(self, git: Git) -> Git:
        """Return git that finds the objects that were stored apart, if any were."""
        return git if self._directory is None else self.git(git)

    def store_again(self, index: Path) -> None:
        """Store all that :func:`store_again` can find, without a look at the repository, and mend that.

        Arguments:
            index: a free path for a copy of the index, in a directory that is for such copies alone.

        Raises:
            OSError: the directory for the objects cannot be made.

        """
        if self._directory is None:
            self._directory = self._stack.enter_context(quarantine(self._objects, self._owner))
        store_again(self._tree, self._git._replace(quarantine=self._directory), index)
        mend_loose(self._directory, self._objects)

    def enter(self, tips: Iterable[str]) -> str | None:
        """Bring all objects of some commits into the repository, and read every new one back.

        Returns:
            What is missing or damaged, in words; ``None`` if the commits may get refs.

        Raises:
            GitError: an object is missing or damaged, or git failed otherwise.
            OSError: a file cannot be written or moved.

        """
        tips = [*dict.fromkeys(tips)]
        safe = kept_tips(self._objects, self._owner)
        new = [tip for tip in tips if tip not in safe]
        if new:
            git = self.git(self._git)
            packed = pack(git, self._objects, new, [*self._present, *existing_commits(git, sorted(safe))])
            if packed is not None:
                if damage := find_damage(self._git._replace(objects=packed), new, self._present):
                    return damage
                enter(packed, self._objects, self._owner, new)
        return find_damage(self._git, tips, self._present)


def store_again(tree: LinkedWorktree, git: Git, index: Path) -> None:
    """Store all files of a worktree and all trees of its index, as far as that works.

    Git writes those objects that it does not find. In a quarantine that borrows from no repository these are
    all, so a damaged object of the repository gets a whole copy.

    Arguments:
        git: git in it, perhaps with a quarantine.
        index: a free path for a copy of the index, in a directory that is for such copies alone.

    """
    scratch = git._replace(index_file=index)
    _remove_copy(index)
    with contextlib.suppress(GitError):
        store_blob(scratch, b"")  # which ``git add --intent-to-add`` has stored
        # The entries get no times, so git reads each file. With the times of the index it would read none.
        entries = run_git(git, "ls-files", "--stage", "-z").stdout
        run_git(scratch, "update-index", "-z", "--index-info", stdin=entries)
        _write_known_trees(scratch)  # of what is staged
        if tree.path.is_dir():
            stage_all(scratch, exclude=())  # the save itself says what git cannot add
            _write_known_trees(scratch)
    _remove_copy(index)


def _remove_copy(index: Path) -> None:
    for path in (index, index.with_name(f"{index.name}.lock")):
        path.unlink(missing_ok=True)


def present_of(tree: LinkedWorktree, git: Git) -> list[str]:
    """Return commits that a session did not make, and that refs contain: their objects need no pack.

    Arguments:
        tree: its worktree, or a submodule in it.
        git: git in it.

    Raises:
        GitError: git failed.

    """
    if tree.base and (base := existing_commits(git, [tree.base])):
        return base
    # The base of a submodule is unknown. A gc deletes the base of a session that has left it, if no branch
    # contains it.
    theirs = {oid for ref, oid in list_refs(git, *_OF_OTHERS).items() if not _is_of_session(ref, tree.branch)}
    return existing_commits(git, sorted(theirs)) if theirs else []


_OF_OTHERS = ("refs/heads/", "refs/remotes/", "refs/tags/")


def _is_of_session(ref: str, branch: str) -> bool:
    return ref.startswith("refs/heads/") if not branch else ref == f"refs/heads/{branch}"


def _write_known_trees(scratch: Git) -> None:
    """Store the trees of an index, even if some of its files are not stored here."""
    with contextlib.suppress(GitError):  # it has conflicts
        run_git(scratch, "write-tree", "--missing-ok")
