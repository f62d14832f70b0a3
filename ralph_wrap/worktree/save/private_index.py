"""The state of a worktree at the end of an iteration, by an index of our own.

One look costs one pass over the files. Git refreshes this index and writes it. The index of a worktree stays
*racy* until somebody writes it: the checkout wrote the files and the index in the same second, and git reads
each such file again (https://git-scm.com/docs/racy-git). For the same reason our index is not copied for each
look: a copy has the old entries with the old times.

It starts as a copy of the agent's index, without the flags that hide changed files. Then it follows the files
on the disk, and git gets the paths alone that its status has named. So these paths come in by other ways:

- What the agent has staged or committed although git ignores it: HEAD, or the agent's index, has such a file
  and ours lacks it. Each look asks for these paths: the file may come, go and come back on the disk.
- What a new rule makes git ignore: ours begins anew.

The end of a session does not use it. It saves and verifies with a fresh copy of the agent's index.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, resolve_commit, run_git, tree_of
from ralph_wrap.git.index import (
    SubmoduleEntry,
    added_paths,
    list_index,
    may_intend_to_add,
    submodules_in,
    write_tree,
)
from ralph_wrap.git.safe.submodules import inner_git, pointers_of
from ralph_wrap.git.status import Status
from ralph_wrap.system import files
from ralph_wrap.worktree.model import EXCLUDES, LinkedWorktree
from ralph_wrap.worktree.save.build_output import BuildOutput, find_build_output
from ralph_wrap.worktree.save.fingerprints import fingerprint, is_pristine, pristine
from ralph_wrap.worktree.save.index import (
    fresh_copy,
    lift_flags,
    may_be_sparse,
    reading_anew,
    resolve,
    stage_changes,
    status_of,
    unlock,
)
from ralph_wrap.worktree.save.registration import require_plain, unsaved_bookkeeping
from ralph_wrap.worktree.save.trees import NO_INDEX, WorktreeTrees, unsaved_files

OWN_INDEX = "index"
"""In the directory of a session: the index of our own."""

COPY_OF_INDEX = "index-staged"
"""In the directory of a session: a copy of the agent's index."""

_RULES = ".gitignore"


class WorktreeState(NamedTuple):
    """The state of a worktree at one moment.

    Attributes:
        branch: short name of the branch that is checked out; ``None`` at a detached HEAD.
        trees: HEAD, the files and what is staged.
        submodules: the state in each submodule with a repository, by path.
        problems: one line for each part that *trees* lacks.
        in_submodules: one line for work in submodules whose repositories are in the registration.
        build_output: many new files that git does not ignore; ``None`` if there are not.

    """

    branch: str | None
    trees: WorktreeTrees
    submodules: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    in_submodules: tuple[str, ...] = ()
    build_output: BuildOutput | None = None

    @property
    def is_clean(self) -> bool:
        """Nothing is uncommitted, also in no submodule."""
        return self.trees.shows_head and all(is_pristine(state) for _, state in self.submodules)

    @property
    def text(self) -> str:
        """A text that changes if an iteration made progress: by a commit, a file, or something staged."""
        head = pristine(self.trees.head or "")
        if self.is_clean:
            return head
        inside = [f"{path} {state}" for path, state in self.submodules if not is_pristine(state)]
        return " ".join([head, self.trees.tree, self.trees.index_tree, *inside])

    def has_same_work(self, other: WorktreeState) -> bool:
        """Return whether a snapshot of one is a snapshot of the other."""
        return (self.branch, self.trees, self.submodules) == (other.branch, other.trees, other.submodules)


class _Staged(NamedTuple):
    """What the agent's index holds.

    Attributes:
        state: a value that changes with the file.
        head: the commit at HEAD.
        tree: object id of what ``git write-tree`` makes of it.
        added: the paths in it that HEAD lacks, also those that git only intends to add and no tree has.
        problem: why it lacks something; empty if it does not.

    """

    state: object
    head: str | None
    tree: str
    added: tuple[str, ...] = ()
    problem: str = ""


class PrivateIndex:
    """The index of our own for one worktree.

    Arguments:
        worktree: the worktree of a session.
        directory: the directory of the session; nothing else has these names in it.

    """

    def __init__(self, worktree: LinkedWorktree, directory: Path) -> None:
        self._worktree = worktree
        self._path = directory / OWN_INDEX
        self._copy = directory / COPY_OF_INDEX  # a git that writes a tree locks the index
        self._rules: object = None  # changes with the files that say what git looks at
        self._tree: str | None = None
        self._staged: _Staged | None = None
        self._at_head: tuple[str, str] | None = None  # a commit and its tree
        self._submodules: list[SubmoduleEntry] = []

    def look(self, git: Git) -> WorktreeState:
        """Return the state of the worktree; its files and trees are stored.

        Arguments:
            git: git at the repository.

        Raises:
            GitError: git failed.
            OSError: a file cannot be read, or a signal came and *git* has a token.

        """
        require_plain(self._worktree)
        git = self._worktree.git(git)  # anew: an agent may have replaced a link
        own = git._replace(index_file=self._path, refreshes_index=True)
        with reading_anew(own):  # an edit that this look misses is in the next one
            return self._look(git, own)

    def _look(self, git: Git, own: Git) -> WorktreeState:
        is_new = self._begin_if_needed(git, own)
        status = status_of(own, ignored=False)
        if not is_new and any(_is_rule(path) for path in (*status.unstaged, *status.new)):
            is_new = True
            self._begin(git, own)
            status = status_of(own, ignored=False)
        output = find_build_output(own, status.new)
        head_tree = self._tree_at_head(own, status)
        staged = self._read_staged(git, status.head, head_tree)
        problems = [*unsaved_bookkeeping(self._worktree), *filter(None, [staged.problem])]
        paths = dict.fromkeys((*status.unstaged, *status.new))
        also = [path for path in self._also(status, staged.added) if path not in paths]
        nested = [path for path in status.nested if path not in also]
        named = set[str]()
        # Apart: beside a file that it cannot add, git adds only what it does not ignore.
        for group in filter(None, ([*paths], also)):
            self._tree = None  # also if a signal or an error ends this: the index has changed
            found, reason = stage_changes(own, group, nested)
            if left := [path for path in found if path not in named]:
                problems.append(unsaved_files(self._worktree, left, reason))
                named.update(left)
        tree = self._tree = self._tree or write_tree(own)
        if status.submodules or len(nested) < len(status.nested):
            self._submodules = submodules_in(own)
        trees = WorktreeTrees(status.head, head_tree, tree, staged.tree)
        state = self._with_repositories(git, status, trees, problems)
        return state._replace(build_output=output)

    def forget(self) -> None:
        """Begin anew with the next look: an object that git takes for stored may be damaged."""
        self._rules, self._tree, self._staged = None, None, None

    def _begin_if_needed(self, git: Git, own: Git) -> bool:
        """Begin anew if the index is gone or if other rules hold, and return whether that was necessary."""
        rules = [files.state(path) for path in self._rule_files()]
        is_usable = self._path.is_file() and not self._path.is_symlink()
        if is_usable and rules == self._rules and not may_be_sparse(self._worktree):
            unlock(own)
            return False
        self._begin(git, own)
        self._rules = rules
        return True

    def _rule_files(self) -> Iterable[Path]:
        """Return the files outside of the worktree that say what git ignores, and where git may look."""
        registration, common_dir = self._worktree.registration, self._worktree.common_dir
        yield common_dir / "info" / "exclude"
        yield from (registration / name for name in (EXCLUDES, "config.worktree", "info/sparse-checkout"))

    def _begin(self, git: Git, own: Git) -> None:
        """Take the agent's index; from then on no flag hides a file, and no conflict prevents a tree.

        If a signal or an error ends this half way, the next look begins anew.
        """
        rules, self._rules = self._rules, None
        self._tree = None
        if self._path.is_dir() and not self._path.is_symlink():
            files.remove_tree(self._path)
        fresh_copy(self._worktree, own)
        try:
            listing = list_index(own)
        except GitError:
            head = resolve_commit(git, "HEAD")
            self._path.unlink(missing_ok=True)
            run_git(own, "read-tree", head or "--empty")
            listing = list_index(own)
        lift_flags(self._worktree, own, listing)
        if listing.has_conflicts:  # a file that cannot be staged would leave its conflict, and so no tree
            resolve(own)
            listing = list_index(own)
        self._submodules = [*listing.submodules()]
        self._rules = rules

    def _read_staged(self, git: Git, head: str | None, head_tree: str | None) -> _Staged:
        """Return what the agent's index holds; nothing changes if the agent has staged nothing."""
        state = files.state(self._worktree.registration / "index")
        if self._staged is not None and self._staged[:2] == (state, head) and state is not None:
            return self._staged
        scratch = git._replace(index_file=self._copy)
        problem, added = "", list[str]()
        try:
            fresh_copy(self._worktree, scratch)
            if self._copy.exists():
                tree = _tree_without_conflicts(scratch)
                if tree != head_tree or may_intend_to_add(self._copy, self._worktree.registration):
                    added = added_paths(scratch, head)
            else:
                problem = NO_INDEX
        except GitError as error:
            problem = f"the index cannot be read, what was staged in it is not saved: {error.message}"
        if problem:
            self._copy.unlink(missing_ok=True)
            unlock(scratch)
            run_git(scratch, "read-tree", head or "--empty")
            tree = write_tree(scratch)
        self._staged = _Staged(state, head, tree, tuple(added), problem)
        return self._staged

    def _also(self, status: Status, added: Iterable[str]) -> list[str]:
        """Return paths that our index lacks, that git may not name as new, and that are no less work.

        Arguments:
            status: of our index. It names each path that our index has and HEAD lacks as changed.
            added: the paths that the agent's index has and HEAD lacks.

        """
        lacking = [*status.removed, *({*added} - {*status.changed})]
        return [path for path in lacking if _may_be_staged(self._worktree.path, path)]

    def _tree_at_head(self, own: Git, status: Status) -> str | None:
        """Return the tree of HEAD; where our index has it, no commit is read."""
        if status.head is None:
            return None
        if self._at_head is None or self._at_head[0] != status.head:
            if not status.changed:
                self._tree = self._tree or write_tree(own)
            self._at_head = (status.head, tree_of(own, status.head) if status.changed else str(self._tree))
        return self._at_head[1]

    def _with_repositories(
        self, git: Git, status: Status, trees: WorktreeTrees, problems: list[str]
    ) -> WorktreeState:
        """Return the state with what is in submodules, and name the repositories that no tree can hold."""
        worktree = self._worktree
        pointers = pointers_of(self._submodules, worktree.path, worktree.copies)
        known = {submodule.path: submodule for submodule in pointers}
        problems += [f"nested repository {path}" for path in sorted({*status.nested} - {*known})]
        states, in_submodules = list[tuple[str, str]](), list[str]()
        for path, submodule in known.items():
            inner, directory = inner_git(git, worktree.path, submodule), worktree.path / path
            state = fingerprint(inner, directory, worktree.copies)
            states.append((path, state))
            lines = [] if is_pristine(state) else [f"submodule {path}: the uncommitted work in it"]
            lines += [f"submodule {path}: the commits in it"] if path in status.changed else []
            is_found = submodule.git_dir.is_relative_to(worktree.registration)
            (in_submodules if is_found else problems).extend(lines)
        return WorktreeState(status.branch, trees, tuple(states), tuple(problems), tuple(in_submodules))


def remove_private_index(directory: Path) -> None:
    """Remove the files of a private index from the directory of a session; the next look makes them again.

    Raises:
        OSError: one cannot be removed.

    """
    for name in (OWN_INDEX, COPY_OF_INDEX):
        for path in (directory / name, directory / f"{name}.lock"):
            path.unlink(missing_ok=True)


def _is_rule(path: str) -> bool:
    return PurePosixPath(path).name == _RULES


def _may_be_staged(top: Path, path: str) -> bool:
    """Return whether there is a file, a symlink or a repository, and no symlink above it."""
    full = top / path
    try:
        mode = full.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # it is named, as far as git cannot read it
        return True
    if any(above.is_symlink() for above in full.parents if above.is_relative_to(top) and above != top):
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode) or (stat.S_ISDIR(mode) and os.path.lexists(full / ".git"))


def _tree_without_conflicts(scratch: Git) -> str:
    try:
        return write_tree(scratch)
    except GitError:  # it has conflicts; if it has none, git fails again
        resolve(scratch)
        return write_tree(scratch)
