"""Find the branches that change the same paths: which pairs can conflict, and which branches overlap.

Each path has a list of the branches that change it. Memory grows with the changes, and not with the pairs:
30,000 branches that change one file make 450 million pairs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ralph_wrap.branches.conflict_paths import ChangedPaths, NumbersByPath, meeting

Holders = dict[str, list[int]]
"""The numbers of the branches by path, the lowest first."""


class Pairs:
    """The pairs of branches that can conflict.

    Arguments:
        prints: what each branch changes; its place in the list is its number.

    """

    def __init__(self, prints: Sequence[ChangedPaths]) -> None:
        self._prints = prints
        self._numbers = NumbersByPath(
            holders(changed.paths for changed in prints),
            holders(changed.grown for changed in prints),
            holders(changed.left for changed in prints),
        )

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs, the lower number first, in the order of both numbers."""
        for number, changed in enumerate(self._prints):
            others: set[int] = set()
            for paths, by_path in meeting(changed, self._numbers):
                for path in paths:
                    numbers = by_path.get(path, ())
                    others.update(numbers[bisect_right(numbers, number) :])
            yield from ((number, later) for later in sorted(others))

    def after(self, last: tuple[int, int], without: Collection[int]) -> set[int]:
        """Return the branches with a pair that comes after a pair.

        Arguments:
            last: the pair.
            without: pairs with these branches do not count.

        """
        found: set[int] = set()
        for first, second in meeting(self._numbers, self._numbers):
            for path in first.keys() & second.keys():
                found |= _after(first[path], second[path], last, without)
        return found


def holders(rows: Iterable[Collection[str]]) -> Holders:
    """Return the numbers of the rows that have each member."""
    found: Holders = {}
    for number, row in enumerate(rows):
        for member in row:
            found.setdefault(member, []).append(number)
    return found


def overlapping(
    paths: Collection[str], shared: Mapping[str, Sequence[int]], number: int, most: int
) -> list[int]:
    """Return the first other branches that change one of some paths; one more than *most* if there are more.

    Arguments:
        paths: the paths that the branch changes.
        shared: the branches that change each path.
        number: the branch itself.

    """
    found: set[int] = set()
    for path in paths:
        found.update(shared.get(path, ())[: most + 2])
    return sorted(found - {number})[: most + 1]


def _after(
    first: Sequence[int], second: Sequence[int], last: tuple[int, int], without: Collection[int]
) -> set[int]:
    """Return the branches of two lists that have a pair after *last* with one of the other list."""
    open_first, open_second = (
        [number for number in side if number not in without] for side in (first, second)
    )
    later_first, later_second = (
        [number for number in side if number > last[0]] for side in (open_first, open_second)
    )
    found: set[int] = set()
    if len({*later_first, *later_second}) > 1 and later_first and later_second:
        found.update(later_first, later_second)
    for one_side, other_side in ((open_first, open_second), (open_second, open_first)):
        if last[0] in one_side and (rest := [number for number in other_side if number > last[1]]):
            found.update(rest, [last[0]])
    return found
