"""Check that objects hold what their names say: git does not, when it reads them to compare or to check out.

An agent can write another content under the id of an object. Then ``diff`` shows a harmless file, the agent
puts the real object back, and a merge lands it. So what a command shows or lands is hashed before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from ralph_wrap.errors import TO_SEE_DAMAGE, TamperedError
from ralph_wrap.git.command import Git
from ralph_wrap.git.safe.batch import read_all

_TREE = b"40000"


class _Entry(NamedTuple):
    """An entry of a tree."""

    mode: bytes
    oid: str


def require_genuine(git: Git, before: str, after: str) -> None:
    """Check two commits or trees, and all objects in which they differ.

    A missing object is left to the command that needs it.

    Raises:
        TamperedError: an object holds something else than its name says.

    """
    roots = dict(checked(git, {before, after}))
    pairs = [(_tree(before, roots.get(before)), _tree(after, roots.get(after)))]
    blobs: set[str] = set()
    while pairs := [pair for pair in pairs if pair[0] != pair[1]]:
        trees = dict(checked(git, {oid for pair in pairs for oid in pair if oid}))
        pairs = [below for pair in pairs for below in _differing(*pair, trees, blobs)]
    require_objects(git, sorted(blobs))


def _differing(old: str, new: str, trees: dict[str, bytes], blobs: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of trees that differ in two trees, and add the files that differ; "" is no tree."""
    left, right = (_entries(trees.get(oid, b""), len(oid) // 2) for oid in (old, new))
    for name in left.keys() | right.keys():
        sides = left.get(name), right.get(name)
        if sides[0] == sides[1]:
            continue
        below = ["", ""]
        for number, entry in enumerate(sides):
            if entry is not None and entry.mode == _TREE:
                below[number] = entry.oid
            elif entry is not None:
                blobs.add(entry.oid)  # the commit of a submodule is missing here
        yield below[0], below[1]


def _entries(tree: bytes, size: int) -> dict[bytes, _Entry]:
    found, at = {}, 0
    while at < len(tree):
        if (end := tree.find(b"\0", at)) < 0 or len(tree) <= end + size:
            raise TamperedError(
                "a tree is damaged: it ends in the middle of an entry", f"to see all damage: {TO_SEE_DAMAGE}"
            )
        mode, _, name = tree[at:end].partition(b" ")
        at = end + 1 + size
        found[name] = _Entry(mode, tree[end + 1 : at].hex())
    return found


def _tree(oid: str, content: bytes | None) -> str:
    """Return the tree of a commit; a tree is its own."""
    return root_of(content) if content is not None and content.startswith(b"tree ") else oid


def root_of(commit: bytes) -> str:
    """Return the tree that a commit names in its first line (git-commit-tree(1))."""
    return commit.removeprefix(b"tree ").partition(b"\n")[0].decode("ascii", "replace")


def require_objects(git: Git, oids: Collection[str]) -> None:
    """Check objects, each by its id. A missing object is left to the command that needs it.

    Raises:
        TamperedError: an object holds something else than its name says, or is damaged.

    """
    for _ in checked(git, oids):
        pass


def checked(git: Git, oids: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Yield objects whose content has the hash that is their id.

    Raises:
        TamperedError: an object has another one.

    """
    for found in read_all(git, oids):
        if found.problem and not found.is_missing:
            raise TamperedError(found.problem, f"to see all such objects: {TO_SEE_DAMAGE}")
        if not found.problem:
            yield found.oid, found.content
