"""Bundles (gitformat-bundle(5)): refs and one pack with the objects that they need.

A session in a container writes a bundle, and a user takes it in on the host. An agent can write to the same
directory. So the reader does not trust the file. It reads a copy of its own, up to a limit. Then git checks
each object in a directory apart from the repository (``index-pack --strict``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git.command import Git, decode, decode_lines, run_git
from ralph_wrap.git.compare import with_object_directory
from ralph_wrap.git.objects import write_pack
from ralph_wrap.git.oid import is_oid
from ralph_wrap.git.read_back import require_whole
from ralph_wrap.system import files

LARGEST = 4 << 30
"""Bytes of a bundle that is taken in."""

_LONGEST_HEADER = 8 << 20  # bytes; 100,000 refs
_SIGNATURES = {40: b"# v2 git bundle\n", 64: b"# v3 git bundle\n@object-format=sha256\n"}


class BundleHeader(NamedTuple):
    """What a bundle says about itself.

    Attributes:
        base: the commit that the receiver must have.
        refs: full names and object ids.
        length: bytes of the header; the pack follows.

    """

    base: str
    refs: Mapping[str, str]
    length: int


def write_bundle(git: Git, path: Path, base: str, refs: Mapping[str, str], scratch: Path) -> None:
    """Write a bundle in one step: a reader sees the old or the new file, even after a crash.

    Arguments:
        git: git in the repository that has the refs.
        path: the file.
        base: a commit that the receiver has.
        refs: the refs, and their object ids.
        scratch: an empty directory on the file system of *path*.

    Raises:
        GitError: git cannot write the pack.
        OSError: a file cannot be written.

    """
    (scratch / "pack").mkdir()
    write_pack(git, scratch, {*refs.values()}, [base])
    pack = next((scratch / "pack").glob("*.pack"))
    rows = "".join(f"{oid} {ref}\n" for ref, oid in sorted(refs.items()))
    written = scratch / "bundle"
    with written.open("xb") as bundle, pack.open("rb") as source:
        bundle.write(_SIGNATURES[len(base)] + os.fsencode(f"-{base}\n{rows}\n"))
        shutil.copyfileobj(source, bundle)
        bundle.flush()
        os.fsync(bundle.fileno())
    written.replace(path)
    files.fsync(path.parent)


def read_header(path: Path) -> BundleHeader:
    """Read the header of a bundle; no symlink is followed.

    Raises:
        OSError: it is not there, not readable, or not a regular file.
        ValueError: it is not a bundle of ours.

    """
    with open_bundle(path) as bundle:
        return _parse(bundle.read(_LONGEST_HEADER))


def open_bundle(path: Path) -> BinaryIO:
    """Open a bundle for reading: a regular file of limited size, without following a symlink.

    Raises:
        OSError: there is no such file.

    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISREG(status.st_mode):
        raise OSError(errno.EFBIG, f"it has more than {LARGEST >> 30} GiB", str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def _parse(content: bytes) -> BundleHeader:
    signature = next((start for start in _SIGNATURES.values() if content.startswith(start)), None)
    head, end, _ = content.partition(b"\n\n")
    if signature is None or not end:
        raise ValueError("not a bundle")
    first, *rows = decode(head[len(signature) :]).split("\n")
    base = first.removeprefix("-").partition(" ")[0]  # git itself adds the title of the commit
    refs = {}
    for row in rows:
        oid, _, ref = row.partition(" ")
        if not is_oid(oid) or not ref or ref in refs:
            raise ValueError("a damaged list of refs")
        refs[ref] = oid
    if not first.startswith("-") or not is_oid(base):
        raise ValueError("it does not name the commit that it starts from")
    return BundleHeader(base, refs, len(head) + len(end))


def unpack(git: Git, objects: Path, path: Path, quarantine: Path) -> BundleHeader:
    """Unpack a bundle into a directory apart from the repository, and check all its objects.

    Arguments:
        git: git in the repository that gets the objects.
        objects: the object directory of this repository.
        path: the bundle.
        quarantine: an empty directory of ours, on the file system of *objects*.

    Returns:
        The header that belongs to the unpacked objects; the file may have been replaced meanwhile.

    Raises:
        OSError: the file is not a regular file, or too large.
        ValueError: it is not a bundle of ours.
        GitError: an object is damaged, missing or malformed.

    """
    (quarantine / "pack").mkdir()
    incoming = quarantine / "pack" / "incoming.pack"
    with open_bundle(path) as bundle, incoming.open("xb") as pack:
        header = _parse(bundle.read(_LONGEST_HEADER))
        bundle.seek(header.length)
        _copy(bundle, pack)
    apart = with_object_directory(git, quarantine, objects)
    name = decode_lines(run_git(apart, "index-pack", "--strict", incoming).stdout)[0].split("\t")[-1]
    if not is_oid(name):
        raise GitError("index-pack", 0, f"error: it printed {name!r}")
    for suffix in (".pack", ".idx"):
        incoming.with_suffix(suffix).rename(quarantine / "pack" / f"pack-{name}{suffix}")
    incoming.with_suffix(".rev").unlink(missing_ok=True)
    require_whole(apart, [*header.refs.values()], [header.base])
    return header


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    """Copy the rest of a file, which another process may still extend."""
    left = LARGEST
    while chunk := source.read(min(1 << 20, left)):
        target.write(chunk)
        left -= len(chunk)
    if source.read(1):
        raise OSError(errno.EFBIG, f"it has more than {LARGEST >> 30} GiB")
    target.flush()
    os.fsync(target.fileno())


@contextlib.contextmanager
def migrated(quarantine: Path, objects: Path) -> Iterator[None]:
    """Move unpacked objects into the repository: the pack first, then the index that makes it visible.

    In the block they get their refs. Until its end each pack has a ``.keep`` file, as with ``git fetch``: a
    ``git gc`` beside does not delete the pack. A ``.keep`` file that is there already belongs to the user.

    Raises:
        OSError: a file cannot be moved.

    """
    packs = objects / "pack"
    packs.mkdir(exist_ok=True)
    kept: list[Path] = []
    try:
        for path in (quarantine / "pack").glob("pack-*.pack"):
            with contextlib.suppress(FileExistsError):
                keep = packs / f"{path.stem}.keep"
                keep.touch(exist_ok=False)
                kept.append(keep)
        for suffix in (".pack", ".idx"):
            for path in (quarantine / "pack").glob(f"pack-*{suffix}"):
                files.fsync(path)
                path.replace(packs / path.name)
        files.fsync(packs)
        yield
    finally:
        for keep in kept:
            keep.unlink(missing_ok=True)
