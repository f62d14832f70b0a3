"""Compare branches with the main branch and with each other, by a constant number of git processes.

``git merge-tree`` runs only for pairs that can conflict. Such a pair has one of these:

- Both branches change the same path.
- One branch has a file where the other one has a directory.
- One branch adds to a directory from which the other one removes a file. This may be a rename of the
  directory, and git follows such a rename.

All other pairs are clean. At most :data:`MOST_PAIRS` pairs are merged. A branch with a pair left over has
unknown conflicts.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.branches.ancestry import members
from ralph_wrap.branches.merged_by_patch import footprint, landed, meets, touched
from ralph_wrap.branches.positions import positions
from ralph_wrap.branches.temporary_objects import scratch_directory, size_of
from ralph_wrap.errors import GitError
from ralph_wrap.git.compare import MERGES, DiffStat, MergeResult, changes, entries, facts_of, merges
from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ralph_wrap.branches import Branch, MainBranch
    from ralph_wrap.branches.merged_by_patch import Compared
    from ralph_wrap.branches.positions import Position, Positions
    from ralph_wrap.git import Git, Repository
    from ralph_wrap.git.compare import CommitInfo

MOST_PAIRS = 5000
"""Maximum number of pairs of branches in trial merges; each takes a few milliseconds."""

_FEW = 50  # merges
_MUCH = 64 << 20  # bytes
_MEMORY = Path("/dev/shm")  # noqa: S108 -- we create a new directory in it, no fixed name (shm_overview(7))


class BranchComparison(NamedTuple):
    """A branch compared with the main branch and with the other branches; ``None`` is unknown.

    Attributes:
        time: time of commit of its tip, in seconds since 1970.
        ahead: number of commits that the branch has and the main branch lacks.
        behind: number of commits that the main branch has and the branch lacks.
        base: the merge base with the main branch.
        change: size of the change since the merge base.
        merged: the main branch has its commits, or the same patches, or a merge would change nothing.
        conflicts_main: a merge into the main branch has conflicts.
        conflicts: labels of the branches with which a merge has conflicts.
        overlaps: labels of the branches that change a file that this branch changes.

    """

    time: int | None = None
    ahead: int | None = None
    behind: int | None = None
    base: str | None = None
    change: DiffStat | None = None
    merged: bool | None = None
    conflicts_main: bool | None = None
    conflicts: tuple[str, ...] | None = None
    overlaps: tuple[str, ...] | None = None


def compare(
    git: Git,
    repository: Repository,
    main: MainBranch | None,
    branches: Sequence[Branch],
    *,
    pairs: bool = True,
) -> tuple[dict[str, BranchComparison], list[str]]:
    """Return the facts of each branch by its name, and notes about facts that are unknown.

    Arguments:
        main: the main branch; without one, most facts are unknown.
        branches: all branches.
        pairs: merge the branches with each other, too.

    Raises:
        GitError: a commit in their history is missing.

    """
    tips = [*dict.fromkeys(branch.tip for branch in branches)]
    known = facts_of(git, [*tips, *([main.tip] if main else [])])
    if main is None or main.tip not in known:
        return {one.name: _without_main(known.get(one.tip)) for one in branches}, []
    found = positions(git, main.tip, [tip for tip in tips if tip in known], known)
    wholes = [(tip, at.base) for tip, at in found.of.items() if at.base and at.commits]
    with ThreadPoolExecutor(1) as aside:  # git counts the changed lines while the merges run
        counting = aside.submit(changes, git, wholes)
        table = _Comparison(git, found, known, main, wholes)
        tried, notes = _merges_of(table, repository, pairs=pairs)
        counted = dict(zip((tip for tip, _ in wholes), counting.result(), strict=True))
    return table.rows(branches, counted, tried), notes


class _TrialMerges(NamedTuple):
    """The results of the trial merges.

    Attributes:
        facing: for each tip, whether it conflicts with the main branch.
        clashes: for each tip, the tips that it conflicts with.
        untried: tips with pairs that were not merged.

    """

    facing: Mapping[str, bool]
    clashes: Mapping[str, set[str]]
    untried: set[str]


def _merges_of(
    table: _Comparison, repository: Repository, *, pairs: bool
) -> tuple[_TrialMerges | None, list[str]]:
    if repository.git_version < MERGES:
        return None, ["conflicts are unknown: git before 2.39 cannot try merges without a checkout"]
    try:
        tried = table.merged_with(repository.common_dir, pairs=pairs)
    except (GitError, OSError) as error:
        return None, [f"conflicts are unknown: {error}"]
    if not tried.untried:
        return tried, []
    note = f"more than {MOST_PAIRS} pairs of branches touch the same files"
    return tried, [f"conflicts of {len(tried.untried)} branches are unknown: {note}"]


def _tried(git: Git, pairs: Sequence[tuple[str, str]], common_dir: Path) -> list[MergeResult]:
    """Run trial merges. Their objects stay in memory if they will be small: a disk is much slower.

    The first few merges show the size. If directories hold many files, each merge writes large trees.
    """
    few, others = pairs[:_FEW], pairs[_FEW:]
    found: list[MergeResult] = []
    if os.access(_MEMORY, os.W_OK | os.X_OK):
        with contextlib.suppress(GitError, OSError), scratch_directory(_MEMORY) as scratch:  # it may be full
            found = merges(git, few, common_dir=common_dir, objects=scratch)
            if others and size_of(scratch) * len(others) / len(few) <= _MUCH:
                found += merges(git, others, common_dir=common_dir, objects=scratch)
    if left := pairs[len(found) :]:
        with scratch_directory(Path(tempfile.gettempdir())) as scratch:
            found += merges(git, left, common_dir=common_dir, objects=scratch)
    return found


def _without_main(fact: CommitInfo | None) -> BranchComparison:
    return BranchComparison(time=fact.time if fact else None)


class _Comparison:
    """Data that is computed once for all branches; branches with the same tip share it.

    Arguments:
        found: positions of the tips relative to the main branch.
        known: the facts of the tip commits.
        main: the main branch.
        wholes: the tips that have commits of their own, each with its merge base.

    """

    def __init__(
        self,
        git: Git,
        found: Positions,
        known: Mapping[str, CommitInfo],
        main: MainBranch,
        wholes: Sequence[tuple[str, str]],
    ) -> None:
        self._git = git
        self._found = found
        self._known = known
        self._main = main
        behind = [pair for pair in wholes if found.of[pair[0]].behind]
        single = [(oid, *found.ahead.parents[oid]) for tip, _ in behind for oid in found.of[tip].commits]
        asked: list[Compared] = [*dict.fromkeys([*wholes, *single])]
        own = dict(zip(asked, entries(git, asked), strict=True))
        self._prints = {tip: footprint(own[tip, base]) for tip, base in wholes}
        self._touched = touched(git, found, self._prints.values(), [own[one] for one in single])
        self._landed = landed(git, found, own, self._touched)
        self._open = [tip for tip in self._prints if tip not in self._landed]

    def merged_with(self, common_dir: Path, *, pairs: bool) -> _TrialMerges:
        """Run the trial merges of pairs that can conflict; a tip whose merge changes nothing has landed.

        Arguments:
            common_dir: common directory of the repository.
            pairs: merge the tips with each other, too.

        Raises:
            GitError: git cannot run the merges.
            OSError: the directory for the new objects cannot be created.

        """
        facing = [
            tip for tip in self._open if meets(self._prints[tip], self._found.of[tip].missed, self._touched)
        ]
        meeting = self._pairs() if pairs else []
        tried = meeting[:MOST_PAIRS]
        asked = [*((self._main.tip, tip) for tip in facing), *tried]
        tries = _tried(self._git, asked, common_dir)
        against = dict(zip(facing, tries, strict=False))
        for tip, merge in against.items():
            if merge.clean and merge.tree == self._known[self._main.tip].tree and self._prints[tip].paths:
                self._landed.add(tip)
        clashes: dict[str, set[str]] = {}
        for (one, other), merge in zip(tried, tries[len(facing) :], strict=True):
            if not merge.clean and not {one, other} & self._landed:
                clashes.setdefault(one, set()).add(other)
                clashes.setdefault(other, set()).add(one)
        untried = {tip for pair in meeting[MOST_PAIRS:] if not {*pair} & self._landed for tip in pair}
        return _TrialMerges({tip: not merge.clean for tip, merge in against.items()}, clashes, untried)

    def _pairs(self) -> list[tuple[str, str]]:
        """Return the pairs of tips that can conflict."""
        prints = [self._prints[tip] for tip in self._open]
        paths, grown, left = (_holders(row) for row in zip(*prints, strict=True)) if prints else ({}, {}, {})
        found = []
        for number, (tip, one) in enumerate(zip(self._open, prints, strict=True)):
            met = 0
            for places, others in (
                (one.paths, paths),
                (one.paths, grown),
                (one.grown, paths),
                (one.grown, left),
                (one.left, grown),
            ):
                for place in places:
                    met |= others.get(place, 0)
            later = met >> (number + 1)
            found += [(tip, self._open[number + 1 + bit]) for bit in members(later)]
        return found

    def rows(
        self, branches: Sequence[Branch], counted: Mapping[str, DiffStat], tried: _TrialMerges | None
    ) -> dict[str, BranchComparison]:
        """Return the facts of each branch, by name.

        Arguments:
            branches: all branches.
            counted: size of the change of each tip.
            tried: results of the trial merges; ``None`` if they could not run.

        """
        unmerged = [one for one in branches if one.tip in self._prints and one.tip not in self._landed]
        touching = _holders([self._prints[one.tip].paths for one in unmerged])
        numbers = {one.name: number for number, one in enumerate(unmerged)}
        found = {}
        for one in branches:
            at = self._found.of.get(one.tip)
            if at is None:  # its commit does not exist
                found[one.name] = BranchComparison()
                continue
            row = self._row(one.tip, at, counted)
            if one.name in numbers:
                met = 0
                for path in self._prints[one.tip].paths:
                    met |= touching[path]
                met &= ~(1 << numbers[one.name])
                row = row._replace(
                    conflicts_main=None if tried is None else tried.facing.get(one.tip, False),
                    conflicts=None
                    if tried is None or one.tip in tried.untried
                    else _in_order(unmerged, tried.clashes.get(one.tip, ())),
                    overlaps=tuple(unmerged[bit].label for bit in members(met)),
                )
            found[one.name] = row
        return found

    def _row(self, tip: str, at: Position, counted: Mapping[str, DiffStat]) -> BranchComparison:
        """Return the facts of a tip that do not depend on other branches."""
        row = BranchComparison(
            time=self._known[tip].time,
            ahead=len(at.commits),
            behind=at.behind,
            base=at.base,
            merged=not at.commits or tip in self._landed,
        )
        if at.base is None:
            return row
        change = counted[tip] if at.commits else DiffStat(0, 0, 0)
        return row._replace(change=change, conflicts_main=False, conflicts=(), overlaps=())


def _in_order(branches: Sequence[Branch], tips: Collection[str]) -> tuple[str, ...]:
    """Return the labels of the branches that have these tips, in the order of *branches*."""
    return tuple(one.label for one in branches if one.tip in tips) if tips else ()


def _holders(rows: Sequence[frozenset[str]]) -> dict[str, int]:
    """Return for each member the sets that contain it, one bit a set."""
    found: dict[str, int] = {}
    for number, row in enumerate(rows):
        for member in row:
            found[member] = found.get(member, 0) | 1 << number
    return found
