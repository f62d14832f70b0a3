"""Find merge bases of branches with the main branch, and the commits since: two walks through the history.

The first walk lists the commits that the branches have and the main branch lacks. It also lists the boundary
commits; they give the merge bases. The second walk lists the commits of the main branch since the oldest
merge base. This is enough if all other merge bases descend from the oldest one. If not, git finds their
common ancestors, and the second walk goes back to these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.branches.ancestry import ancestry, members, numbered
from ralph_wrap.git.compare import CommitGraph, common_ancestors, history
from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ralph_wrap.git import Git
    from ralph_wrap.git.compare import CommitInfo

_MOST = 1000  # commits on a command line


class Position(NamedTuple):
    """The position of a commit relative to the main branch.

    Attributes:
        base: the merge base, the newest of several; ``None`` if they have no history in common.
        commits: the commits that it has and the main branch lacks, parents first.
        behind: number of commits that the main branch has and it lacks; ``None`` without a merge base.
        missed: these commits of *Positions.main*, as bits.

    """

    base: str | None
    commits: tuple[str, ...]
    behind: int | None
    missed: int


class Positions(NamedTuple):
    """The positions of some commits relative to the main branch.

    Attributes:
        of: the position of each commit.
        ahead: the commits that they have and the main branch lacks.
        main: the commits of the main branch that at least one of them lacks; the order numbers the bits.

    """

    of: Mapping[str, Position]
    ahead: CommitGraph
    main: CommitGraph


def positions(objects: Git, main: str, tips: Collection[str], facts: Mapping[str, CommitInfo]) -> Positions:
    """Return the positions of commits relative to the main branch.

    Arguments:
        main: the tip of the main branch.
        tips: the commits.
        facts: the fields of each commit.

    Raises:
        GitError: a commit in the history is missing.

    """
    ahead = history(objects, tips, [main])
    edge = [*ahead.edge]
    own = ancestry(ahead.parents, numbered(ahead.parents), tips)
    exits = ancestry(ahead.parents, numbered(edge), tips)
    bases = {tip: [edge[bit] for bit in members(exits[tip])] if tip in exits else [tip] for tip in tips}
    times = {
        base: ahead.edge[base] if base in ahead.edge else facts[base].time for base in _all(bases.values())
    }
    missed = _since(objects, main, times)
    between = ancestry(missed.parents, numbered(times), times)
    passed = ancestry(missed.parents, numbered(missed.parents), times)
    order = [*times]
    commits = [*ahead.parents]
    found = {}
    for tip in tips:
        best = _outermost(bases[tip], between, order)
        contained = 0
        for base in best:
            contained |= passed.get(base, 0)
        lacking = ((1 << len(missed.parents)) - 1) & ~contained
        found[tip] = Position(
            base=max(best, key=lambda base: (times[base], base)) if best else None,
            commits=tuple(commits[bit] for bit in members(own.get(tip, 0))),
            behind=lacking.bit_count() if best else None,
            missed=lacking if best else 0,
        )
    return Positions(found, ahead, missed)


def _all(rows: Iterable[Sequence[str]]) -> list[str]:
    return [*dict.fromkeys(base for row in rows for base in row)]


def _since(objects: Git, main: str, times: Mapping[str, int]) -> CommitGraph:
    """Return the commits of the main branch that at least one of its ancestors in *times* lacks."""
    if not times:
        return CommitGraph({}, {})
    oldest = min(times, key=lambda base: (times[base], base))
    missed = history(objects, [main], [oldest])
    reaching = ancestry(missed.parents, {oldest: 0}, times)
    if all(base == oldest or reaching.get(base) for base in times):
        return missed
    common = common_ancestors(objects, [*times]) if len(times) <= _MOST else []
    return history(objects, [main], common)


def _outermost(bases: Sequence[str], between: Mapping[str, int], order: Sequence[str]) -> list[str]:
    """Return the merge bases that are not ancestors of other merge bases."""
    if len(bases) == 1:
        return [*bases]
    inner = {order[bit] for base in bases for bit in members(between.get(base, 0)) if order[bit] != base}
    return [base for base in bases if base not in inner]
