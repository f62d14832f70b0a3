"""Parse the content of commits, trees and annotated tags (git-cat-file(1), git-mktag(1), git-mktree(1))."""

from __future__ import annotations

import re
from typing import NamedTuple

from ralph_wrap.git.oid import is_oid

_KIND_OF_MODE, _DIRECTORY, _GITLINK = 0o170000, 0o040000, 0o160000
_COMMITTED = re.compile(rb"^committer .*> (\d+)", re.MULTILINE)
_ENTRIES = {
    40: re.compile(rb"([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL),
    64: re.compile(rb"([0-7]+) ([^\0]+)\0(.{32})", re.DOTALL),
}
"""The entries of a tree, by the hexadecimal digits of an object id."""


class TreeEntry(NamedTuple):
    """An entry of a tree: its mode, its name, and the object id in bytes."""

    mode: bytes
    name: bytes
    raw_oid: bytes

    @property
    def oid(self) -> str:
        """The object id."""
        return self.raw_oid.hex()

    @property
    def kind(self) -> str:
        """The type of the object: ``tree``, ``blob``, or ``commit`` for a submodule."""
        return {_DIRECTORY: "tree", _GITLINK: "commit"}.get(int(self.mode, 8) & _KIND_OF_MODE, "blob")


def tree_entries(content: bytes, digits: int) -> set[tuple[bytes, bytes, bytes]]:
    """Return the fields of all entries of a tree (:class:`TreeEntry`).

    Arguments:
        digits: hexadecimal digits of an object id.

    Raises:
        ValueError: it is malformed.

    """
    entries = _ENTRIES[digits].findall(content)
    # Between two fields are a space and a zero byte.
    if sum(len(mode) + len(name) + len(oid) + 2 for mode, name, oid in entries) != len(content):
        raise ValueError("malformed")
    return {*entries}


class RawCommit(NamedTuple):
    """A commit: its tree, its parents, and when it was committed, in seconds since 1970."""

    tree: str
    parents: tuple[str, ...]
    time: int


def parse_commit(content: bytes) -> RawCommit:
    """Parse a commit.

    Raises:
        ValueError: it is malformed.

    """
    header = content.partition(b"\n\n")[0]
    tree, *rest = header.decode("ascii", "replace").split("\n")
    parents = []
    for line in rest:
        key, _, value = line.partition(" ")
        if key != "parent":
            break
        parents.append(value)
    oids = [tree.removeprefix("tree "), *parents]
    if not tree.startswith("tree ") or not all(map(is_oid, oids)):
        raise ValueError("malformed")
    committed = _COMMITTED.search(header)
    return RawCommit(oids[0], tuple(parents), int(committed[1]) if committed else 0)


def parse_tag(content: bytes) -> tuple[str, str]:
    """Return id and type of the object that an annotated tag names.

    Raises:
        ValueError: it is malformed.

    """
    first, second, *_ = (*content.decode("ascii", "replace").split("\n"), "", "")
    oid, kind = first.removeprefix("object "), second.removeprefix("type ")
    if not is_oid(oid) or not second.startswith("type "):
        raise ValueError("malformed")
    return oid, kind
