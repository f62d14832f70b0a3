"""Find ancestors in a history that git has listed; a set of commits is one integer, one bit a commit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

_NOT_EMPTY = re.compile(rb"[^\0]")


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
    uses = Counter(parent for commit_parents in parents.values() for parent in commit_parents)
    needed = {*wanted}
    contained: dict[str, int] = {}
    for commit, commit_parents in parents.items():
        ancestors = 1 << bits[commit] if commit in bits else 0
        for parent in commit_parents:
            if parent in contained:
                ancestors |= contained[parent]
            elif parent in bits:
                ancestors |= 1 << bits[parent]
            uses[parent] -= 1
            if not uses[parent] and parent not in needed:
                contained.pop(parent, None)
        if uses[commit] or commit in needed:
            contained[commit] = ancestors
    return {commit: contained[commit] for commit in needed if commit in contained}


def members(bits: int) -> Iterator[int]:
    """Yield the numbers of the bits in a set, lowest first; the zeros between them take little time."""
    if not bits:
        return
    lowest = (bits & -bits).bit_length() - 1
    content = (bits >> lowest).to_bytes((bits.bit_length() - lowest + 7) // 8, "little")
    for found in _NOT_EMPTY.finditer(content):
        position, byte = lowest + found.start() * 8, content[found.start()]
        yield from (position + bit for bit in range(8) if byte >> bit & 1)
