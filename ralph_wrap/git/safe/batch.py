"""Read many objects by their ids, with few processes (git-cat-file(1): ``--batch``).

A few megabytes in the repository of an agent can be gigabytes of content. So the sizes are read first, and
then the objects in parts that fit into memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ralph_wrap.errors import TO_SEE_DAMAGE, TamperedError
from ralph_wrap.git.command import DURABLE, Git, decode_lines, run_git

_OF_AN_OBJECT = 3  # words: object id, type, size; for a missing object there are two
_LARGEST_PART = 16 << 20  # bytes; a part is in memory twice for a moment
_MOST_DAMAGED = 1000  # objects: git ends at each of them
_SIZES = "--batch-check=%(objectsize)"
_SHA1 = 40  # hexadecimal digits
_STOPPED = 128


class ReadObject(NamedTuple):
    """An object of a repository.

    Attributes:
        oid: its id.
        kind: ``blob``, ``tree``, ``commit`` or ``tag``; empty if it cannot be read.
        content: empty if it cannot be read.
        problem: it is missing or damaged, or its content has another id; empty if it is genuine.

    """

    oid: str
    kind: bytes
    content: bytes
    problem: str

    @property
    def is_missing(self) -> bool:
        """Whether the repository does not have it."""
        return self.problem.endswith(_MISSING)


_MISSING = "is missing; in a partial clone, with git 2.36 or newer: git fetch --refetch --no-filter"
_DAMAGED = "is damaged"
_REPLACED = "holds something else than its name says: another program has replaced it"


def read_objects(git: Git, oids: Collection[str]) -> dict[str, tuple[bytes, bytes]]:
    """Return type and content of objects by id; missing ones are left out.

    Raises:
        GitError: an object is damaged.

    """
    if not oids:
        return {}
    answer = run_git(git, "cat-file", "--batch", stdin=_listed(oids)).stdout
    return {parsed.oid: (parsed.kind, parsed.content) for parsed in _parsed(answer, [*oids]) if parsed.kind}


def read_blobs(git: Git, oids: Collection[str]) -> dict[str, bytes]:
    """Return the contents of blobs by id; other objects and missing ones are left out."""
    return {oid: content for oid, (kind, content) in read_objects(git, oids).items() if kind == b"blob"}


def read_all(git: Git, oids: Collection[str]) -> Iterator[ReadObject]:
    """Yield objects, each with what is wrong with it.

    Arguments:
        oids: object ids; each only once.

    Raises:
        TamperedError: too many objects are damaged.

    """
    left = _MOST_DAMAGED
    for part in _parts(git, [*oids]):
        waiting = part
        while waiting:
            # At a damaged object git ends with an error, after all objects before it.
            completed = run_git(git, "cat-file", "--batch", stdin=_listed(waiting), accept=(0, _STOPPED))
            found = 0
            for parsed in _parsed(completed.stdout, waiting):
                found += 1
                yield parsed if parsed.problem else parsed._replace(problem=_difference(parsed))
            if found < len(waiting):
                yield ReadObject(waiting[found], b"", b"", f"object {waiting[found]} {_DAMAGED}")
                found, left = found + 1, left - 1
            if not left:
                raise TamperedError(
                    f"more than {_MOST_DAMAGED} objects of the repository are damaged",
                    f"to see them: {TO_SEE_DAMAGE}",
                )
            waiting = waiting[found:]


def _difference(found: ReadObject) -> str:
    hashed = hashlib.sha1 if len(found.oid) == _SHA1 else hashlib.sha256
    digest = hashed(b"%s %d\0" % (found.kind, len(found.content)))
    digest.update(found.content)
    return "" if digest.hexdigest() == found.oid else f"object {found.oid} {_REPLACED}"


def _parsed(answer: bytes, oids: Sequence[str]) -> Iterator[ReadObject]:
    """Yield the objects of an answer of git, which ends at the first damaged object."""
    at = 0
    for oid in oids:
        if (end := answer.find(b"\n", at)) < 0:
            return
        words = answer[at:end].split(b" ")
        at = end + 1
        if len(words) != _OF_AN_OBJECT:
            yield ReadObject(oid, b"", b"", f"object {oid} {_MISSING}")
            continue
        size = int(words[2])
        if len(answer) <= at + size:
            return
        yield ReadObject(oid, words[1], answer[at : at + size], "")
        at += size + 1


def _parts(git: Git, oids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Divide objects into parts that fit into memory; a part has at least one."""
    if not oids:
        return
    sizes = decode_lines(run_git(git, "cat-file", _SIZES, stdin=_listed(oids)).stdout)
    begin, total = 0, 0
    for number, row in enumerate(sizes):
        size = int(row) if row.isdigit() else 0  # it is missing
        if number > begin and total + size > _LARGEST_PART:
            yield oids[begin:number]
            begin, total = number, 0
        total += size
    yield oids[begin:]


def _listed(oids: Collection[str]) -> bytes:
    return "".join(f"{oid}\n" for oid in oids).encode()


def store_blobs(git: Git, contents: Sequence[bytes]) -> list[str]:
    """Store blobs by one git process, and return their ids (git-fast-import(1))."""
    rows = [
        b"blob\nmark :%d\ndata %d\n%s\nget-mark :%d\n" % (number, len(content), content, number)
        for number, content in enumerate(contents, 1)
    ]
    answer = run_git(git, "fast-import", "--quiet", config=DURABLE, stdin=b"".join(rows))
    return decode_lines(answer.stdout)
