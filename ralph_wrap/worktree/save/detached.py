"""Commits that an agent made on a detached HEAD: its saved work has them, and its branch lacks them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ralph_wrap.branches import Branch
from ralph_wrap.git import Git, count_commits
from ralph_wrap.git.compare import facts_of
from ralph_wrap.worktree.save.trees import WORK_TITLE


class DetachedCommits(NamedTuple):
    """The number of these commits, and the object id of the last one."""

    number: int
    last: str


def detached_commits(git: Git, branches: Iterable[Branch]) -> dict[str, DetachedCommits]:
    """Return these commits of each branch that has some, by its name.

    Arguments:
        git: git in the repository, or in a shadow git directory.
        branches: the branches; a commit of one that cannot be read is left out.

    Raises:
        GitError: git failed.

    """
    saved = [(branch, branch.saved) for branch in branches if branch.saved and not branch.only_saved]
    if not saved:
        return {}
    facts = facts_of(git, [tip for _, tip in saved])
    found = {}
    for branch, tip in saved:
        if tip not in facts:
            continue
        is_work, parents = facts[tip].subject.startswith(WORK_TITLE), facts[tip].parents
        last = next(iter(parents), None) if is_work else tip
        if last and last != branch.tip and (number := count_commits(git, branch.tip, last)):
            found[branch.name] = DetachedCommits(number, last)
    return found
