"""Which branches the main branch has, though not by their commits: squashed, or rebased.

A branch has landed if each of its commits, or all of them together, changed the same lines in the same way as
one commit that the main branch has got since. Only commits that touch the very same files are compared, so
that few patches are looked at. A merge or a commit without a change is like nothing: a branch that has one
has landed only as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.branches.ancestry import members
from ralph_wrap.git.compare import digests, entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ralph_wrap.branches.positions import Positions
    from ralph_wrap.git import Git

_AT_ONCE = 5000  # commits of the main branch whose files are listed by one git process

Compared = tuple[str, ...]
"""A commit and what it is held against: its parents, or the commit where its branch began."""


class Footprint(NamedTuple):
    """Where two sides of a merge can meet.

    Attributes:
        paths: what is changed.
        grown: directories, at any depth, that something is added to.
        left: the same with something deleted from them: they may have been renamed.

    """

    paths: frozenset[str]
    grown: frozenset[str]
    left: frozenset[str]


class Touched(NamedTuple):
    """What the main branch has done to what branches touch.

    Attributes:
        paths: by path, the numbers of the commits that touch it.
        grown: by directory, or by path where there is a directory now, of those that add something in it.
        left: the same of those that delete something from it.
        same: by the paths that a commit touches, its number, itself, and how it does.

    """

    paths: Mapping[str, Sequence[int]]
    grown: Mapping[str, Sequence[int]]
    left: Mapping[str, Sequence[int]]
    same: Mapping[frozenset[str], Sequence[tuple[int, Compared, Mapping[str, str]]]]


def footprint(files: Mapping[str, str]) -> Footprint:
    """Return where a change can meet another one.

    Arguments:
        files: how each path differs, as git lists it without renames.

    """
    letters = {path: how.rpartition(" ")[2] for path, how in files.items()}
    return Footprint(
        frozenset(files),
        frozenset(one for path, letter in letters.items() if "A" in letter for one in _above(path)),
        frozenset(one for path, letter in letters.items() if "D" in letter for one in _above(path)),
    )


def _above(path: str) -> Iterator[str]:
    """Yield the directories that a path is in, without the top, which git never takes for renamed."""
    while (cut := path.rfind("/")) > 0:
        path = path[:cut]
        yield path


def touched(
    where: Git, found: Positions, prints: Iterable[Footprint], pieces: Iterable[Mapping[str, str]]
) -> Touched:
    """Return what the main branch has done.

    Arguments:
        found: where the branches stand.
        prints: of the branches.
        pieces: what their commits change.

    """
    places: set[str] = {path for piece in pieces for path in piece}
    for one in prints:
        places.update(*one)
    paths: dict[str, list[int]] = {}
    grown: dict[str, list[int]] = {}
    left: dict[str, list[int]] = {}
    same: dict[frozenset[str], list[tuple[int, Compared, Mapping[str, str]]]] = {}
    missed = 0
    for at in found.of.values():
        missed |= at.missed if at.commits else 0
    commits = [*found.main.parents]
    wanted = [*members(missed)] if places else []
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        listed = entries(where, [(commits[one], *found.main.parents[commits[one]]) for one in some])
        for number, files in zip(some, listed, strict=True):
            commit = commits[number]
            theirs = footprint(files)
            for numbers, met in zip((paths, grown, left), theirs, strict=True):
                for place in met & places:
                    numbers.setdefault(place, []).append(number)
            if theirs.paths <= places and len(found.main.parents[commit]) == 1:
                whole = (commit, *found.main.parents[commit])
                same.setdefault(theirs.paths, []).append((number, whole, files))
    return Touched(paths, grown, left, same)


def meets(one: Footprint, missed: int, main: Touched) -> bool:
    """Tell whether a branch can conflict with what the main branch has got since they parted."""
    had = missed.to_bytes(missed.bit_length() // 8 + 1, "little")
    return any(
        had[number >> 3] >> (number & 7) & 1
        for places, numbers in (
            (one.paths, main.paths),
            (one.paths, main.grown),
            (one.grown, main.paths),
            (one.grown, main.left),
            (one.left, main.grown),
        )
        for place in places
        for number in reversed(numbers.get(place, ()))
        if number >> 3 < len(had)
    )


def landed(
    where: Git,
    found: Positions,
    own: Mapping[Compared, Mapping[str, str]],
    main: Touched,
) -> set[str]:
    """Return those tips that have landed by patch.

    Arguments:
        found: where the branches stand.
        own: what each commit changes, and what each branch does as a whole: tip and base.
        main: what the main branch has done.

    """
    wholes = {tip: (tip, at.base) for tip, at in found.of.items() if at.base and at.commits and at.behind}
    pieces = {
        tip: [(commit, *found.ahead.parents[commit]) for commit in found.of[tip].commits]
        for tip in wholes
        if all(len(found.ahead.parents[commit]) == 1 for commit in found.of[tip].commits)
    }
    like = {
        (tip, one): _alike(own[one], found.of[tip].missed, main)
        for tip, whole in wholes.items()
        for one in {whole, *pieces.get(tip, ())}
    }
    open_ones = {one for (_, one), (sure, perhaps) in like.items() if perhaps and not sure}
    theirs = {other for (_, one), (_, perhaps) in like.items() if one in open_ones for other in perhaps}
    asked = [*open_ones, *theirs]
    patches = dict(zip(asked, digests(where, asked), strict=True))

    def has_landed(tip: str, one: Compared) -> bool:
        sure, perhaps = like[tip, one]
        return sure or any(patches[one] == patches[other] for other in perhaps)

    return {
        tip
        for tip, whole in wholes.items()
        if has_landed(tip, whole) or (pieces.get(tip) and all(has_landed(tip, one) for one in pieces[tip]))
    }


def _alike(files: Mapping[str, str], missed: int, main: Touched) -> tuple[bool, list[Compared]]:
    """Return whether a commit of the main branch makes files the same of the same, else those that may."""
    perhaps = []
    for number, one, theirs in main.same.get(frozenset(files), ()) if files else ():
        if missed >> number & 1:
            if theirs == files:
                return True, []
            perhaps.append(one)
    return False, perhaps
