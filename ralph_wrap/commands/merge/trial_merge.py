"""The trial merge of a branch into the target in a temporary worktree."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ralph_wrap.branches import Branch
from ralph_wrap.commands.merge.target import LandingTarget
from ralph_wrap.errors import ConflictError
from ralph_wrap.git import Git, commits_without, resolve_commit, tree_of
from ralph_wrap.git import merge as merging
from ralph_wrap.system.text import some

_LISTED = 100  # commits in the message of a squash; it counts the others


class MergeMethod(Enum):
    """The way in which a branch lands."""

    MERGE = "merge"
    NO_FF = "no-ff"
    SQUASH = "squash"
    REBASE = "rebase"


class TrialMerge(NamedTuple):
    """The result of a trial merge.

    Attributes:
        commit: the new commit for the target; ``None`` after conflicts.
        way: ``fast-forward``, ``merge``, ``squash`` or ``rebase``.
        conflicts: paths with conflicts.

    """

    commit: str | None
    way: str
    conflicts: tuple[str, ...] = ()


def attempt(
    git: Git, branch: Branch, target: LandingTarget, tip: str, method: MergeMethod, into_main: bool
) -> TrialMerge:
    """Make the new commit for the target, and check it out in the worktree of *git*.

    Arguments:
        git: git in a detached temporary worktree.
        branch: the branch to land.
        tip: the target's tip.
        into_main: the target is the main branch.

    Raises:
        ConflictError: the branch cannot land in this way.
        GitError: git failed for another reason than conflicts.

    """
    merging.reset_to(git, tip)
    ahead = merging.is_ancestor(git, tip, branch.tip)
    if method is MergeMethod.REBASE and merging.has_merges(git, branch.tip, tip):
        raise ConflictError(
            f"{branch.name} has merge commits, which cannot be rebased", "leave out --rebase, or use --squash"
        )
    if ahead and method in {MergeMethod.MERGE, MergeMethod.REBASE}:
        merging.reset_to(git, branch.tip)
        return TrialMerge(branch.tip, "fast-forward")
    if method is MergeMethod.REBASE:
        way, conflicts = "rebase", merging.replay(git, merging.to_replay(git, branch.tip, tip))
    elif method is MergeMethod.SQUASH:
        way, conflicts = "squash", merging.squash(git, branch.tip, _list(git, branch, tip))
    else:
        way, conflicts = "merge", merging.merge(git, branch.tip, _message(branch, target, into_main))
    if conflicts:
        return TrialMerge(None, way, conflicts)
    commit = resolve_commit(git, "HEAD")
    assert commit is not None  # git has just made it
    if method is MergeMethod.MERGE and tree_of(git, commit) == tree_of(git, tip):
        commit = tip  # the target already has its changes, for example from a squash
    return TrialMerge(commit, way)


def _message(branch: Branch, target: LandingTarget, into_main: bool) -> str:
    """Return the message that git itself would use."""
    return f"Merge branch '{branch.name}'{'' if into_main else f' into {target.name}'}"


def _list(git: Git, branch: Branch, tip: str) -> str:
    commits = commits_without(git, [branch.tip], tip)[::-1]
    counted = f"{len(commits)} commit{'' if len(commits) == 1 else 's'}"
    rows = some([f"{commit.subject} ({commit.id[:12]})" for commit in commits], _LISTED)
    return "\n".join((f"Squash branch '{branch.name}': {counted}", "", *(f"* {row}" for row in rows), ""))
