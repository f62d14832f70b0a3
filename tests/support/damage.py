"""Damage objects of a repository as disks, power failures and programs do, loose and packed."""

from __future__ import annotations

import hashlib
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.repo import Repo


class StoredObject(NamedTuple):
    """Type and content of an object."""

    kind: str
    content: bytes

    @property
    def raw(self) -> bytes:
        """What its id is the hash of (gitformat-loose(5))."""
        return f"{self.kind} {len(self.content)}\0".encode() + self.content


_OTHER_KIND = {"blob": "commit", "tree": "blob", "commit": "blob", "tag": "blob"}
_KIND_NUMBERS = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}

Damage = Callable[[StoredObject, bytes], tuple[StoredObject, bytes] | None]
"""Returns what is stored instead: type and size in the header, and compressed bytes; ``None`` for nothing."""


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def _other(content: bytes) -> bytes:
    """Return another content of the same length, which is as well-formed as it was."""
    if not content:
        return content
    at = next((number for number, byte in enumerate(content) if chr(byte) in "0123456789abcdef"), 0)
    return content[:at] + (b"1" if content[at : at + 1] != b"1" else b"2") + content[at + 1 :]


DAMAGES: dict[str, Damage] = {
    "missing": lambda _stored, _packed: None,
    "empty": lambda stored, _packed: (stored, b""),
    "truncated": lambda stored, packed: (stored, packed[: len(packed) // 2]),
    "flipped byte": lambda stored, packed: (stored, _flipped(packed, len(packed) // 2)),
    "flipped checksum": lambda stored, packed: (stored, _flipped(packed, len(packed) - 1)),
    "other content": lambda stored, _packed: _whole(stored._replace(content=_other(stored.content))),
    "other type": lambda stored, _packed: _whole(stored._replace(kind=_OTHER_KIND[stored.kind])),
    "other object": lambda _stored, _packed: _whole(StoredObject("blob", b"something else\n")),
}
"""Every kind of damage. The last three are whole in themselves: only the hash tells."""


def _whole(stored: StoredObject) -> tuple[StoredObject, bytes]:
    return stored, zlib.compress(stored.content)


def objects_of(repo: Repo) -> dict[str, StoredObject]:
    """Return all objects of a repository by id."""
    listed = repo.git("cat-file", "--batch-all-objects", "--batch-check").split("\n")
    kinds = dict(row.split(" ")[:2] for row in listed)
    return {oid: StoredObject(kind, content_of(repo, kind, oid)) for oid, kind in kinds.items()}


def content_of(repo: Repo, kind: str, oid: str) -> bytes:
    """Return the raw content of an object."""
    return subprocess.run(
        ("git", "cat-file", kind, oid), cwd=repo.path, capture_output=True, check=True
    ).stdout


def store(repo: Repo, kind: str, content: bytes) -> str:
    """Store a loose object, however malformed, and return its id."""
    stored = StoredObject(kind, content)
    oid = hashlib.sha1(stored.raw, usedforsecurity=False).hexdigest()
    _write(loose_path(repo, oid), zlib.compress(stored.raw))
    return oid


def loose_path(repo: Repo, oid: str) -> Path:
    """Return where an object is if it is loose."""
    return repo.path / ".git/objects" / oid[:2] / oid[2:]


def damage_loose(repo: Repo, oid: str, how: str) -> None:
    """Damage a loose object."""
    path = loose_path(repo, oid)
    before = path.read_bytes()
    kind, _, rest = zlib.decompress(before).partition(b" ")
    stored = StoredObject(kind.decode(), rest.partition(b"\0")[2])
    instead = DAMAGES[how](stored, before)
    path.unlink()
    if instead is not None:
        is_whole = instead[0] != stored
        _write(path, zlib.compress(instead[0].raw) if is_whole else instead[1])


@contextmanager
def damaged(repo: Repo, oid: str, how: str) -> Iterator[None]:
    """Have a loose object damaged in the block, and whole again after it."""
    before = loose_path(repo, oid).read_bytes()
    damage_loose(repo, oid, how)
    try:
        yield
    finally:
        loose_path(repo, oid).unlink(missing_ok=True)
        _write(loose_path(repo, oid), before)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def pack(repo: Repo, objects: Mapping[str, StoredObject], target: str = "", how: str = "") -> Path:
    """Write all objects into one pack, the only objects of the repository, with one damaged.

    Pack and index have the right checksums (gitformat-pack(5)), as those of a damaged disk under them.
    """
    entries: dict[str, tuple[int, int]] = {}  # offset and checksum
    body = bytearray()
    for oid, stored in objects.items():
        packed: tuple[StoredObject, bytes] | None = _whole(stored)
        if oid == target:
            packed = DAMAGES[how](*_whole(stored))
        if packed is None:
            continue
        entry = _entry_header(packed[0]) + packed[1]
        entries[oid] = (12 + len(body), zlib.crc32(entry))
        body += entry
    content = struct.pack(">4sII", b"PACK", 2, len(entries)) + body
    checksum = hashlib.sha1(content, usedforsecurity=False).digest()
    for directory in (repo.path / ".git/objects").glob("??"):
        for path in directory.iterdir():
            path.unlink()
    directory = repo.path / ".git/objects/pack"
    for path in directory.iterdir():
        path.unlink()
    written = directory / f"pack-{checksum.hex()}.pack"
    written.write_bytes(content + checksum)
    written.with_suffix(".idx").write_bytes(_index(entries, checksum))
    return written


def _entry_header(stored: StoredObject) -> bytes:
    size = len(stored.content)
    octets = [_KIND_NUMBERS[stored.kind] << 4 | size & 15]
    size >>= 4
    while size:
        octets[-1] |= 0x80
        octets.append(size & 0x7F)
        size >>= 7
    return bytes(octets)


def _index(entries: Mapping[str, tuple[int, int]], checksum: bytes) -> bytes:
    oids = sorted(entries)
    counts = [sum(int(oid[:2], 16) <= first for oid in oids) for first in range(256)]
    index = b"\xfftOc" + struct.pack(">I256I", 2, *counts) + b"".join(map(bytes.fromhex, oids))
    index += b"".join(struct.pack(">I", entries[oid][1]) for oid in oids)
    index += b"".join(struct.pack(">I", entries[oid][0]) for oid in oids) + checksum
    return index + hashlib.sha1(index, usedforsecurity=False).digest()
