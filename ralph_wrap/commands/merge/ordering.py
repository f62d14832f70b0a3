"""The landing order of branches with the fewest conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ralph_wrap.branches import Branch
from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, Repository, compare
from ralph_wrap.git import merge as merging
from ralph_wrap.git.shadow import shadow_repository
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.worktree.temporary import TemporaryWorktree


def best(
    trial: TemporaryWorktree,
    repository: Repository,
    wanted: Sequence[Branch],
    tip: str,
    cancel: CancelToken,
) -> list[Branch]:
    """Return branches in the order of fewest conflicts; equal ones keep their order.

    It tries to merge each pair. Branches that conflict with the target come last. Of the others, the next one
    is always the one with the fewest conflicts among the rest. The branches in conflict with it come after
    all others.

    Arguments:
        trial: the temporary worktree for the trials.
        tip: the target's tip.
        cancel: after a signal, the pairs that were not tried count as free of conflicts.

    """
    clash = _clashes(trial, repository, [tip, *(branch.tip for branch in wanted)], cancel)
    hopeless = [branch for branch in wanted if frozenset((tip, branch.tip)) in clash]
    remaining = [branch for branch in wanted if branch not in hopeless]
    chosen: list[Branch] = []
    conflicting: list[Branch] = []
    while remaining:
        following = min(remaining, key=lambda branch: _number_of_clashes(branch, remaining, clash))
        beaten = [branch for branch in remaining if frozenset((branch.tip, following.tip)) in clash]
        chosen.append(following)
        conflicting += beaten
        remaining = [branch for branch in remaining if branch not in beaten and branch != following]
    return [*chosen, *conflicting, *hopeless]


def _number_of_clashes(branch: Branch, others: Sequence[Branch], clash: set[frozenset[str]]) -> int:
    return sum(frozenset((branch.tip, other.tip)) in clash for other in others)


def _clashes(
    trial: TemporaryWorktree, repository: Repository, tips: Sequence[str], cancel: CancelToken
) -> set[frozenset[str]]:
    """Return the pairs of commits that cannot be merged."""
    pairs = list(combinations(dict.fromkeys(tips), 2))
    if repository.git_version >= compare.MERGES:
        scratch = trial.registration / "objects"
        scratch.mkdir()
        with shadow_repository(trial.git, repository) as objects:
            tried = compare.merges(objects, pairs, scratch)
        return {frozenset(pair) for pair, merge in zip(pairs, tried, strict=True) if not merge.clean}
    return {frozenset(pair) for pair in pairs if not cancel.requested and _conflict(trial.git, *pair)}


def _conflict(git: Git, tip: str, other: str) -> bool:
    if merging.is_ancestor(git, tip, other) or merging.is_ancestor(git, other, tip):
        return False
    try:
        merging.reset_to(git, tip)
        return merging.has_conflicts(git, other)
    except GitError:  # unrelated histories
        return True
