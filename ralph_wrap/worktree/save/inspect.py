"""Find the work in one worktree or submodule that its branch does not hold; change nothing.

``submodules`` does the same for its submodules, and ``whole`` combines both.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, Head, finish_git, pointer, read_head, resolve_commit, run_git
from ralph_wrap.git.index import list_index
from ralph_wrap.git.status import Status, parse_status, start_status
from ralph_wrap.system.cancel import NEVER
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.clones import sort_nested, still_clones
from ralph_wrap.worktree.save.commits import named_commits, named_objects, unreachable
from ralph_wrap.worktree.save.index import (
    fresh_copy,
    holds_unseen_files,
    index_digest,
    lift_flags,
    not_in_index,
    reading_anew,
    status_of,
)
from ralph_wrap.worktree.save.registration import operation, unsaved_bookkeeping
from ralph_wrap.worktree.save.result import Losses, SavedWork
from ralph_wrap.worktree.save.walk import DirectoryWalk, walk


def has_submodules(worktree: LinkedWorktree) -> bool:
    """Return whether the removal of a worktree would delete repositories of submodules."""
    return os.path.lexists(worktree.registration / "modules")


def look(
    worktree: LinkedWorktree,
    git: Git,
    scratch: Git,
    problems: list[str],
    inner: Collection[str],
    *,
    needs_index: bool = False,
) -> tuple[Status, DirectoryWalk]:
    """Return the differences of a worktree from its HEAD, including files that index flags hide.

    Arguments:
        git: git in it.
        scratch: the same with a copy of the index, which this function makes.
        problems: gets a line for each thing that git does not see or cannot save.
        inner: paths of its submodules, which this function leaves out.
        needs_index: an index that git cannot read, or a HEAD without its tree, is an error and no problem.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read, or a signal came and *git* has a token.

    """
    fresh_copy(worktree, scratch)
    reading = scratch if scratch.index_file is not None and scratch.index_file.exists() else git
    with reading_anew(scratch), start_status(reading) as running:
        walked = walk(worktree.path, inner, git.cancel or NEVER)
        problems += walked.problems
        problems += unsaved_bookkeeping(worktree)
        try:
            listing = list_index(git)
            answer = finish_git(running, "status").stdout
        except GitError as error:
            if needs_index:
                raise
            problems.append(f"the index cannot be read, what was staged in it is not saved: {error.message}")
            head = resolve_commit(git, "HEAD")
            run_git(scratch, "read-tree", *((head,) if head else ("--empty",)))
            return status_of(scratch), walked
    for entry in listing.submodules():
        if holds_unseen_files(worktree.path / entry.path):
            problems.append(f"git does not look at the files below the submodule's path {entry.path}")
    with reading_anew(scratch):
        is_lifted = lift_flags(worktree, scratch, listing)
    return status_of(scratch) if is_lifted else parse_status(answer), walked


def head_of(worktree: LinkedWorktree, git: Git) -> Head:
    """Return HEAD of a worktree, without its tree if the files alone tell the rest.

    Arguments:
        git: git in it.

    """
    found = pointer.branch_at_head(worktree.registration, worktree.common_dir)
    return read_head(git) if found is None else Head(found[1], None, found[0])


def tree_losses(tree: LinkedWorktree, git: Git, index: Path, inner: tuple[str, ...] = ()) -> Losses:
    """Return the work that would be lost with a worktree, without its submodules.

    Arguments:
        tree: the worktree.
        git: git at the repository.
        index: a free path for a copy of the index.
        inner: paths of its submodules.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read.

    """
    worktree_git = tree.git(git)
    problems: list[str] = []
    status, walked = look(tree, worktree_git, worktree_git._replace(index_file=index), problems, inner)
    nested = sort_nested(tree, git, index, status, walked)
    problems += nested.problems
    named = named_objects(tree.registration, worktree_git, problems)
    commits = unreachable(worktree_git, named_commits(worktree_git, named, problems))
    return Losses(
        paths=(*status.changed, *status.untracked),
        commits=tuple(commits),
        operation=operation(tree),
        problems=tuple(problems),
        ignored=status.ignored,
        ignored_files=walked.count_below(status.ignored),
        clones=nested.clones,
    )


def tree_holds(tree: LinkedWorktree, git: Git, index: Path, directory: Path, saved: SavedWork) -> bool:
    """Return whether a worktree and its commits are unchanged since the save, without its submodules.

    Arguments:
        tree: a worktree that was saved without a problem.
        git: git at the repository.
        index: the index path of the save.
        directory: the present directory of the worktree.
        saved: the result of the save.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read.

    """
    worktree_git = tree.git(git, directory)
    problems: list[str] = []
    named = named_objects(tree.registration, worktree_git, problems)
    new = named_commits(worktree_git, named - saved.named, problems)
    if problems or unreachable(worktree_git, new):
        return False  # there is a new commit that only the registration names
    if not still_clones(tree, git, index, directory, saved.clones):
        return False
    if saved.staged is not None and index_digest(tree) != saved.staged:
        return False  # something was staged since the save
    if index.exists():
        inner = {submodule.path for submodule in saved.inner}
        return {*not_in_index(worktree_git._replace(index_file=index))} <= {*saved.missing} | inner
    return status_of(worktree_git).clean
