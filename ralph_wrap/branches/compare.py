"""Branches held against the main branch and against each other, by a constant number of git processes.

``merge-tree`` is asked only about pairs that can conflict: those that touch a common path, put a file where
the other one has a directory, or add to a directory that the other one has taken something from (which may be
a rename that git follows). All other pairs are clean. More than :data:`MOST_PAIRS` are not tried; whoever
has one of those left has unknown conflicts.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.branches.ancestry import members
from ralph_wrap.branches.merged_by_patch import footprint, landed, meets, touched
from ralph_wrap.branches.positions import positions
from ralph_wrap.branches.temporary_objects import scratch_directory, size_of
from ralph_wrap.errors import GitError
from ralph_wrap.git.compare import MERGES, Change, Merge, changes, entries, facts_of, merges

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ralph_wrap.branches import Branch, Main
    from ralph_wrap.branches.merged_by_patch import Compared
    from ralph_wrap.branches.positions import Position, Positions
    from ralph_wrap.git import Git, Repository
    from ralph_wrap.git.compare import Fact

MOST_PAIRS = 5000
"""Pairs of branches that are merged to see whether they conflict; a few milliseconds each."""

_FEW = 50  # merges
_MUCH = 64 << 20  # bytes
_MEMORY = Path("/dev/shm")  # noqa: S108 -- a new directory is made in it, never a fixed name (shm_overview(7))


class Facts(NamedTuple):
    """What a branch is against the main branch and the other branches; ``None`` is not known.

    Attributes:
        time: when its tip was committed, in seconds since 1970.
        ahead: how many commits it has and the main branch lacks.
        behind: the reverse.
        base: the merge base.
        change: what it changes since.
        merged: the main branch has it: by its commits, by the same patches, or because merging would change
            nothing.
        conflicts_main: it cannot be merged into the main branch as it stands.
        conflicts: labels of the branches that it cannot be merged with.
        overlaps: the same of those that touch a file that it touches.

    """

    time: int | None = None
    ahead: int | None = None
    behind: int | None = None
    base: str | None = None
    change: Change | None = None
    merged: bool | None = None
    conflicts_main: bool | None = None
    conflicts: tuple[str, ...] | None = None
    overlaps: tuple[str, ...] | None = None


def compare(
    where: Git,
    repository: Repository,
    main: Main | None,
    branches: Sequence[Branch],
    *,
    pairs: bool = True,
) -> tuple[dict[str, Facts], list[str]]:
    """Return what branches are against the main branch and each other, by name; and what could not be told.

    Arguments:
        repository: which one.
        main: the main branch; without one there is little to tell.
        branches: all of them.
        pairs: tell which branches conflict with each other.

    Raises:
        GitError: a commit in their history is missing.

    """
    tips = [*dict.fromkeys(branch.tip for branch in branches)]
    known = facts_of(where, [*tips, *([main.tip] if main else [])])
    if main is None or main.tip not in known:
        return {one.name: _without_main(known.get(one.tip)) for one in branches}, []
    found = positions(where, main.tip, [tip for tip in tips if tip in known], known)
    wholes = [(tip, at.base) for tip, at in found.of.items() if at.base and at.commits]
    with ThreadPoolExecutor(1) as aside:  # nothing else waits for the lines that are counted
        counting = aside.submit(changes, where, wholes)
        table = _Table(where, found, known, main, wholes)
        tried, notes = _merges_of(table, repository, pairs=pairs)
        counted = dict(zip((tip for tip, _ in wholes), counting.result(), strict=True))
    return table.rows(branches, counted, tried), notes


class _Tries(NamedTuple):
    """What came of the merges that were tried.

    Attributes:
        facing: which tips conflict with the main branch; the others can be merged into it.
        clashes: which tips conflict with which others.
        untried: tips of which not all pairs were tried.

    """

    facing: Mapping[str, bool]
    clashes: Mapping[str, set[str]]
    untried: set[str]


def _merges_of(table: _Table, repository: Repository, *, pairs: bool) -> tuple[_Tries | None, list[str]]:
    if repository.git_version < MERGES:
        return None, ["conflicts are not told: git before 2.39 cannot try merges without a checkout"]
    try:
        tried = table.merged_with(repository.common_dir, pairs=pairs)
    except (GitError, OSError) as error:
        return None, [f"conflicts cannot be told: {error}"]
    if not tried.untried:
        return tried, []
    note = f"more than {MOST_PAIRS} pairs of branches touch the same files"
    return tried, [f"conflicts are not told of {len(tried.untried)} branches: {note}"]


def _tried(where: Git, pairs: Sequence[tuple[str, str]], common_dir: Path) -> list[Merge]:
    """Try merges, with what is made by that in memory if it will not be much: a disk is slower by far.

    How much it will be is known after the first few: where directories hold many files, each merge writes
    large trees.
    """
    few, others = pairs[:_FEW], pairs[_FEW:]
    found: list[Merge] = []
    if os.access(_MEMORY, os.W_OK | os.X_OK):
        with contextlib.suppress(GitError, OSError), scratch_directory(_MEMORY) as scratch:  # it may be small
            found = merges(where, few, common_dir=common_dir, objects=scratch)
            if others and size_of(scratch) * len(others) / len(few) <= _MUCH:
                found += merges(where, others, common_dir=common_dir, objects=scratch)
    if left := pairs[len(found) :]:
        with scratch_directory(Path(tempfile.gettempdir())) as scratch:
            found += merges(where, left, common_dir=common_dir, objects=scratch)
    return found


def _without_main(fact: Fact | None) -> Facts:
    return Facts(time=fact.time if fact else None)


class _Table:
    """What is computed once for all branches; branches with the same tip are one.

    Arguments:
        found: where they stand.
        known: what their tips say.
        main: the main branch.
        wholes: those that have commits of their own, with their merge bases.

    """

    def __init__(
        self,
        where: Git,
        found: Positions,
        known: Mapping[str, Fact],
        main: Main,
        wholes: Sequence[tuple[str, str]],
    ) -> None:
        self._where = where
        self._found = found
        self._known = known
        self._main = main
        behind = [pair for pair in wholes if found.of[pair[0]].behind]
        single = [(oid, *found.ahead.parents[oid]) for tip, _ in behind for oid in found.of[tip].commits]
        asked: list[Compared] = [*dict.fromkeys([*wholes, *single])]
        own = dict(zip(asked, entries(where, asked), strict=True))
        self._prints = {tip: footprint(own[tip, base]) for tip, base in wholes}
        self._touched = touched(where, found, self._prints.values(), [own[one] for one in single])
        self._landed = landed(where, found, own, self._touched)
        self._open = [tip for tip in self._prints if tip not in self._landed]

    def merged_with(self, common_dir: Path, *, pairs: bool) -> _Tries:
        """Try the merges that can conflict; what merging would not change has landed.

        Arguments:
            common_dir: of the repository.
            pairs: with each other, too.

        Raises:
            GitError: they cannot be tried.
            OSError: there is no place for what is made by that.

        """
        facing = [
            tip for tip in self._open if meets(self._prints[tip], self._found.of[tip].missed, self._touched)
        ]
        meeting = self._pairs() if pairs else []
        tried = meeting[:MOST_PAIRS]
        asked = [*((self._main.tip, tip) for tip in facing), *tried]
        tries = _tried(self._where, asked, common_dir)
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
        return _Tries({tip: not merge.clean for tip, merge in against.items()}, clashes, untried)

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
        self, branches: Sequence[Branch], counted: Mapping[str, Change], tried: _Tries | None
    ) -> dict[str, Facts]:
        """Return the facts of each branch, by name.

        Arguments:
            branches: all of them.
            counted: what each tip changes.
            tried: the merges; ``None`` if they could not be.

        """
        unmerged = [one for one in branches if one.tip in self._prints and one.tip not in self._landed]
        touching = _holders([self._prints[one.tip].paths for one in unmerged])
        numbers = {one.name: number for number, one in enumerate(unmerged)}
        found = {}
        for one in branches:
            at = self._found.of.get(one.tip)
            if at is None:  # its commit is not there
                found[one.name] = Facts()
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

    def _row(self, tip: str, at: Position, counted: Mapping[str, Change]) -> Facts:
        """Return what is known of a tip without the others."""
        row = Facts(
            time=self._known[tip].time,
            ahead=len(at.commits),
            behind=at.behind,
            base=at.base,
            merged=not at.commits or tip in self._landed,
        )
        if at.base is None:
            return row
        change = counted[tip] if at.commits else Change(0, 0, 0)
        return row._replace(change=change, conflicts_main=False, conflicts=(), overlaps=())


def _in_order(branches: Sequence[Branch], tips: Collection[str]) -> tuple[str, ...]:
    """Return the labels of the branches that have these tips."""
    return tuple(one.label for one in branches if one.tip in tips) if tips else ()


def _holders(rows: Sequence[frozenset[str]]) -> dict[str, int]:
    """Return for each member which of some sets have it, as bits."""
    found: dict[str, int] = {}
    for number, row in enumerate(rows):
        for member in row:
            found[member] = found.get(member, 0) | 1 << number
    return found
