"""Find merge bases of branches with the main branch, and the commits since: two walks through the history.

The first walk lists the commits that the branches have and the main branch lacks. It also lists the boundary
commits; they give the merge bases. The second walk lists the commits of the main branch since the oldest
merge base. This is enough if all other merge bases descend from the oldest one. If not, git finds their
common ancestors, and the second walk goes back to these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ralph_wrap.branches.ancestry import ancestry, members, numbered
from ralph_wrap.git import Git
from ralph_wrap.git.compare import CommitGraph, CommitInfo, common_ancestors, history

_MOST = 1000  # commits on a command line
_MOST_STEPS = 1_000_000  # from commits to their parents
_AT_ONCE = 1000  # sets of commits in memory


class Position(NamedTuple):
    """The position of a commit relative to the main branch.

    Attributes:
        base: the merge base, the newest of several; ``None`` if they have no history in common.
        ahead: number of commits that it has and the main branch lacks.
        commits: these commits. ``None``: they are too many. If 30,000 branches stand on each other, the lists
            would not fit into memory.
        behind: number of commits that the main branch has and it lacks; ``None`` without a merge base.
        bases: all merge bases that are not ancestors of other ones.

    """

    base: str | None
    ahead: int
    commits: tuple[str, ...] | None
    behind: int | None
    bases: tuple[str, ...]


class Positions(NamedTuple):
    """The positions of some commits relative to the main branch.

    Attributes:
        of: the position of each commit.
        ahead: the commits that they have and the main branch lacks.
        main: the commits of the main branch that at least one of them lacks; the order numbers the bits.
        contained: the commits of *main* that each merge base contains, as bits.

    """

    of: Mapping[str, Position]
    ahead: CommitGraph
    main: CommitGraph
    contained: Mapping[str, int]

    def missed(self, tip: str) -> int:
        """Return the commits of *main* that a commit lacks, as bits; none without a merge base.

        Each call computes them: for 30,000 branches, all sets at once would take 100 MB.
        """
        bases = self.of[tip].bases
        return _lacking(self.main, self.contained, bases) if bases else 0


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
    reached = _reached(ahead, tips)
    bases = {tip: reached[tip].edge if tip in ahead.parents else (tip,) for tip in tips}
    times = {
        base: ahead.edge[base] if base in ahead.edge else facts[base].time for base in _all(bases.values())
    }
    missed = _since(objects, main, times)
    several = _all(row for row in bases.values() if len(row) > 1)
    between = ancestry(missed.parents, numbered(several), several)
    contained = ancestry(missed.parents, numbered(missed.parents), times)
    behind: dict[tuple[str, ...], int] = {}  # branches with the same merge bases lack the same commits
    found = {}
    for tip in tips:
        best = tuple(sorted(_outermost(bases[tip], between, several)))
        if best and best not in behind:
            behind[best] = _lacking(missed, contained, best).bit_count()
        found[tip] = Position(
            base=max(best, key=lambda base: (times[base], base)) if best else None,
            ahead=reached[tip].ahead,
            commits=reached[tip].commits,
            behind=behind.get(best),
            bases=best,
        )
    return Positions(found, ahead, missed, contained)


def _lacking(main: CommitGraph, contained: Mapping[str, int], bases: Iterable[str]) -> int:
    lacking = (1 << len(main.parents)) - 1
    for base in bases:
        lacking &= ~contained.get(base, 0)
    return lacking


class _Reach(NamedTuple):
    """The commits of a history that a tip contains: their number, a list or ``None``, and the edge."""

    ahead: int
    commits: tuple[str, ...] | None
    edge: tuple[str, ...]


def _reached(ahead: CommitGraph, tips: Collection[str]) -> dict[str, _Reach]:
    """Return what each tip contains, by single steps or, after too many of them, by sets of commits."""
    found: dict[str, _Reach] = {}
    left = _MOST_STEPS
    for tip in tips:
        commits, edge, waiting = dict[str, None](), dict[str, None](), [tip]
        while waiting and left:
            left -= 1
            commit = waiting.pop()
            if commit not in ahead.parents:
                if commit in ahead.edge:
                    edge[commit] = None
            elif commit not in commits:
                commits[commit] = None
                waiting += ahead.parents[commit]
        if waiting:
            break
        found[tip] = _Reach(len(commits), tuple(commits), tuple(edge))
    others = [tip for tip in tips if tip not in found]
    for first in range(0, len(others), _AT_ONCE):
        found |= _counted(ahead, others[first : first + _AT_ONCE])
    return found


def _counted(ahead: CommitGraph, tips: Collection[str]) -> dict[str, _Reach]:
    edge = [*ahead.edge]
    own = ancestry(ahead.parents, numbered(ahead.parents), tips)
    exits = ancestry(ahead.parents, numbered(edge), tips)
    return {
        tip: _Reach(own.get(tip, 0).bit_count(), None, tuple(edge[bit] for bit in members(exits.get(tip, 0))))
        for tip in tips
    }


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


def _outermost(bases: Sequence[str], between: Mapping[str, int], order: Sequence[str]) -> tuple[str, ...]:
    """Return the merge bases that are not ancestors of other merge bases."""
    if len(bases) == 1:
        return tuple(bases)
    inner = {order[bit] for base in bases for bit in members(between.get(base, 0)) if order[bit] != base}
    return tuple(base for base in bases if base not in inner)
