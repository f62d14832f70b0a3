"""Find the branches whose changes the main branch has under other commits: squashed or rebased branches.

A branch has landed in one of two cases. Either the main branch has, for each commit of the branch, a commit
that changes the same lines in the same way. Or it has one such commit for the whole branch.

Only commits that change exactly the same files are compared, so git prints few patches. A merge commit, or
one without a change, has no equal. A branch with such a commit can land only as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.branches.ancestry import members
from ralph_wrap.git.compare import digests, entries
from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ralph_wrap.branches.positions import Positions
    from ralph_wrap.git import Git

_AT_ONCE = 5000  # one git process lists the files of this many commits of the main branch

Compared = tuple[str, ...]
"""A commit, and the commits to compare it with: its parents, or the merge base of its branch."""


class ChangedPaths(NamedTuple):
    """The paths and directories in which a change can conflict with another one.

    Attributes:
        paths: the changed paths.
        grown: directories, at any depth, to which the change adds a file.
        left: directories, at any depth, from which the change deletes a file: this may be a rename.

    """

    paths: frozenset[str]
    grown: frozenset[str]
    left: frozenset[str]


class MainBranchChanges(NamedTuple):
    """The commits of the main branch that change paths which branches change too.

    Attributes:
        paths: by path, the numbers of the commits that change it.
        grown: by directory, or by path of a branch, the numbers of the commits that add a file below it.
        left: by directory, or by path of a branch, the numbers of the commits that delete a file below it.
        same: by the set of paths that a commit changes: number of the commit, the commit, and its changes.

    """

    paths: Mapping[str, Sequence[int]]
    grown: Mapping[str, Sequence[int]]
    left: Mapping[str, Sequence[int]]
    same: Mapping[frozenset[str], Sequence[tuple[int, Compared, Mapping[str, str]]]]


def footprint(files: Mapping[str, str]) -> ChangedPaths:
    """Return the paths and directories in which a change can conflict with another one.

    Arguments:
        files: the change of each path, as git lists it without renames.

    """
    letters = {path: how.rpartition(" ")[2] for path, how in files.items()}
    return ChangedPaths(
        frozenset(files),
        frozenset(one for path, letter in letters.items() if "A" in letter for one in _above(path)),
        frozenset(one for path, letter in letters.items() if "D" in letter for one in _above(path)),
    )


def _above(path: str) -> Iterator[str]:
    """Yield the directories above a path, without the top level: git never treats it as renamed."""
    while (cut := path.rfind("/")) > 0:
        path = path[:cut]
        yield path


def touched(
    git: Git, found: Positions, prints: Iterable[ChangedPaths], pieces: Iterable[Mapping[str, str]]
) -> MainBranchChanges:
    """Return the commits of the main branch that change paths which branches change too.

    Arguments:
        found: positions of the branches.
        prints: footprints of the branches.
        pieces: the changes of their commits.

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
        listed = entries(git, [(commits[one], *found.main.parents[commits[one]]) for one in some])
        for number, files in zip(some, listed, strict=True):
            commit = commits[number]
            theirs = footprint(files)
            for numbers, met in zip((paths, grown, left), theirs, strict=True):
                for place in met & places:
                    numbers.setdefault(place, []).append(number)
            if theirs.paths <= places and len(found.main.parents[commit]) == 1:
                whole = (commit, *found.main.parents[commit])
                same.setdefault(theirs.paths, []).append((number, whole, files))
    return MainBranchChanges(paths, grown, left, same)


def meets(changed: ChangedPaths, missed: int, main: MainBranchChanges) -> bool:
    """Tell whether a branch can conflict with the commits of the main branch since the merge base."""
    had = missed.to_bytes(missed.bit_length() // 8 + 1, "little")
    return any(
        had[number >> 3] >> (number & 7) & 1
        for places, numbers in (
            (changed.paths, main.paths),
            (changed.paths, main.grown),
            (changed.grown, main.paths),
            (changed.grown, main.left),
            (changed.left, main.grown),
        )
        for place in places
        for number in reversed(numbers.get(place, ()))
        if number >> 3 < len(had)
    )


def landed(
    git: Git,
    found: Positions,
    own: Mapping[Compared, Mapping[str, str]],
    main: MainBranchChanges,
) -> set[str]:
    """Return the tips whose changes the main branch has under other commits.

    Arguments:
        found: positions of the branches.
        own: the changes of each commit, and of each whole branch (tip and base).
        main: the commits of the main branch that change the same paths.

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
    patches = dict(zip(asked, digests(git, asked), strict=True))

    def has_landed(tip: str, one: Compared) -> bool:
        sure, perhaps = like[tip, one]
        return sure or any(patches[one] == patches[other] for other in perhaps)

    return {
        tip
        for tip, whole in wholes.items()
        if has_landed(tip, whole) or (pieces.get(tip) and all(has_landed(tip, one) for one in pieces[tip]))
    }


def _alike(files: Mapping[str, str], missed: int, main: MainBranchChanges) -> tuple[bool, list[Compared]]:
    """Compare a change with the commits of the main branch that it lacks and that change the same files.

    Returns:
        Whether one of them has the same objects before and after. If none has: the commits whose patches
        must be compared.

    """
    perhaps = []
    for number, one, theirs in main.same.get(frozenset(files), ()) if files else ():
        if missed >> number & 1:
            if theirs == files:
                return True, []
            perhaps.append(one)
    return False, perhaps
