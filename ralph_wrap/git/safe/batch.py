"""Read many objects by their ids, with one process (git-cat-file(1): ``--batch``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.git.command import Git, run_git

if TYPE_CHECKING:
    from collections.abc import Collection

_OF_AN_OBJECT = 3  # words: object id, type, size; for a missing object there are two


def read_objects(git: Git, oids: Collection[str]) -> dict[str, tuple[bytes, bytes]]:
    """Return type and content of objects by id; missing ones are left out."""
    if not oids:
        return {}
    answer = run_git(git, "cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in oids).encode()).stdout
    found, at = {}, 0
    for oid in oids:
        end = answer.index(b"\n", at)
        words = answer[at:end].split(b" ")
        at = end + 1
        if len(words) != _OF_AN_OBJECT:
            continue
        size = int(words[2])
        found[oid] = words[1], answer[at : at + size]
        at += size + 1
    return found


def read_blobs(git: Git, oids: Collection[str]) -> dict[str, bytes]:
    """Return the contents of blobs by id; other objects and missing ones are left out."""
    return {oid: content for oid, (kind, content) in read_objects(git, oids).items() if kind == b"blob"}
