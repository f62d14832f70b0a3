"""Find ancestors in a history that git has listed; a set of commits is one integer, one bit a commit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


def numbered(commits: Collection[str]) -> dict[str, int]:
    """Return the number of the bit of each commit."""
    return {commit: number for number, commit in enumerate(commits)}


def ancestry(
    parents: Mapping[str, tuple[str, ...]], bits: Mapping[str, int], wanted: Collection[str]
) -> dict[str, int]:
    """Return for each wanted commit the set of numbered commits that it contains, itself included.

    The walk drops each set after its last use. In a long history all sets at once would not fit into memory.

    Arguments:
        parents: maps each commit of a history to its parents, boundary commits included. A commit comes after
            its parents.
        bits: see :func:`numbered`.
        wanted: commits of the history; unknown commits are left out of the result.

    """
    users = Counter(above for row in parents.values() for above in row)
    kept = {*wanted}
    held: dict[str, int] = {}
    for commit, row in parents.items():
        found = 1 << bits[commit] if commit in bits else 0
        for above in row:
            if above in held:
                found |= held[above]
            elif above in bits:
                found |= 1 << bits[above]
            users[above] -= 1
            if not users[above] and above not in kept:
                held.pop(above, None)
        if users[commit] or commit in kept:
            held[commit] = found
    return {commit: held[commit] for commit in kept if commit in held}


def members(found: int) -> Iterator[int]:
    """Yield the numbers of the bits in a set, lowest first."""
    for place, byte in enumerate(found.to_bytes((found.bit_length() + 7) // 8, "little")):
        if byte:
            yield from (place * 8 + bit for bit in range(8) if byte >> bit & 1)
