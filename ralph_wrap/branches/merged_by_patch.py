"""Find the branches whose changes the main branch has under other commits: squashed or rebased branches.

A branch has landed in one of two cases. Either the main branch has, for each commit of the branch, a commit
that changes the same lines in the same way. Or it has one such commit for the whole branch.

Only commits that change exactly the same files are compared, so git prints few patches. A merge commit, or
one without a change, has no equal. A branch with such a commit can land only as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ralph_wrap.branches.ancestry import members
from ralph_wrap.branches.conflict_paths import ChangedPaths, NumbersByPath, conflict_paths, meeting
from ralph_wrap.branches.damage import require_contents
from ralph_wrap.branches.positions import Positions
from ralph_wrap.git import Git
from ralph_wrap.git.compare import digests, entries

_AT_ONCE = 5000  # one git process lists the files of this many commits of the main branch

Compared = tuple[str, ...]
"""A commit, and the commits to compare it with: its parents, or the merge base of its branch."""


class MainBranchChanges(NamedTuple):
    """The commits of the main branch that change paths which branches change too.

    Attributes:
        numbers: the numbers of the commits.
        same: by the set of paths that a commit changes: number of the commit, the commit, and its changes.

    """

    numbers: NumbersByPath
    same: Mapping[frozenset[str], Sequence[tuple[int, Compared, Mapping[str, str]]]]


def touched(
    objects: Git,
    found: Positions,
    prints: Iterable[ChangedPaths],
    pieces: Iterable[Mapping[str, str]],
    trees: set[str],
) -> MainBranchChanges:
    """Return the commits of the main branch that change paths which branches change too.

    Arguments:
        found: positions of the branches.
        prints: footprints of the branches.
        pieces: the changes of their commits.
        trees: gets the directories that differ.

    """
    paths_of_branches: set[str] = {path for piece in pieces for path in piece}
    for changed in prints:
        paths_of_branches.update(*changed)
    found_numbers: tuple[dict[str, list[int]], ...] = ({}, {}, {})
    same: dict[frozenset[str], list[tuple[int, Compared, Mapping[str, str]]]] = {}
    missed = 0
    for tip in {position.bases: tip for tip, position in found.of.items() if position.ahead}.values():
        missed |= found.missed(tip)
    commits = [*found.main.parents]
    wanted = [*members(missed)] if paths_of_branches else []
    for first in range(0, len(wanted), _AT_ONCE):
        chunk = wanted[first : first + _AT_ONCE]
        changes = entries(
            objects,
            [(commits[number], *found.main.parents[commits[number]]) for number in chunk],
            lambda _, tree: trees.add(tree),
        )
        for number, files in zip(chunk, changes, strict=True):
            commit = commits[number]
            changed_by_commit = conflict_paths(files)
            for numbers, touched_paths in zip(found_numbers, changed_by_commit, strict=True):
                for path in touched_paths & paths_of_branches:
                    numbers.setdefault(path, []).append(number)
            if changed_by_commit.paths <= paths_of_branches and len(found.main.parents[commit]) == 1:
                compared = (commit, *found.main.parents[commit])
                same.setdefault(changed_by_commit.paths, []).append((number, compared, files))
    return MainBranchChanges(NumbersByPath(*found_numbers), same)


def meets(changed: ChangedPaths, missed: int, main: MainBranchChanges) -> bool:
    """Return whether a branch can conflict with the commits of the main branch since the merge base."""
    bits = missed.to_bytes(missed.bit_length() // 8 + 1, "little")
    return any(
        bits[number >> 3] >> (number & 7) & 1
        for paths, numbers in meeting(changed, main.numbers)
        for path in paths
        for number in reversed(numbers.get(path, ()))
        if number >> 3 < len(bits)
    )


def landed(
    objects: Git,
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
    spans = {
        tip: (tip, position.base)
        for tip, position in found.of.items()
        if position.base and position.ahead and position.behind and (tip, position.base) in own
    }
    pieces = {
        tip: [(commit, *found.ahead.parents[commit]) for commit in commits]
        for tip in spans
        if (commits := found.of[tip].commits)
        and all(len(found.ahead.parents[commit]) == 1 for commit in commits)
        and all((commit, *found.ahead.parents[commit]) in own for commit in commits)
    }
    equals = {  # by tip too: the tips lack different commits of the main branch
        (tip, compared): _alike(own[compared], found.missed(tip), main)
        for tip, span in spans.items()
        for compared in {span, *pieces.get(tip, ())}
    }
    require_contents(
        objects,
        [
            files
            for (_, compared), (_, alike) in equals.items()
            if alike
            for files in (own[compared], *alike.values())
        ],
    )
    patches = _patches(objects, {(compared, *alike) for (_, compared), (_, alike) in equals.items() if alike})

    def has_landed(tip: str, compared: Compared) -> bool:
        is_equal, alike = equals[tip, compared]
        return is_equal or any(patches[compared] == patches[other] for other in alike)

    return {
        tip
        for tip, span in spans.items()
        if has_landed(tip, span)
        or (pieces.get(tip) and all(has_landed(tip, compared) for compared in pieces[tip]))
    }


def _patches(objects: Git, groups: Iterable[Sequence[Compared]]) -> dict[Compared, bytes]:
    """Return the digest of each patch in these groups."""
    compared = [*{member for group in groups for member in group}]
    return dict(zip(compared, digests(objects, compared), strict=True))


def _alike(
    files: Mapping[str, str], missed: int, main: MainBranchChanges
) -> tuple[bool, dict[Compared, Mapping[str, str]]]:
    """Compare a change with the commits of the main branch that it lacks and that change the same files.

    Returns:
        Whether one of them has the same objects before and after. If none has: the commits whose patches
        must be compared, with their changes.

    """
    alike = {}
    for number, compared, changes in main.same.get(frozenset(files), ()) if files else ():
        if missed >> number & 1:
            if changes == files:
                return True, {}
            alike[compared] = changes
    return False, alike
