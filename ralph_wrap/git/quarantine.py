"""New objects apart from the repository, until they enter it as one pack that no ``git gc`` deletes.

``git gc``, ``git prune``, ``git repack`` and ``git maintenance`` first find what refs, reflogs and indexes
contain, and later delete the rest. New objects have no ref yet. So any such command that began before the ref
was made may delete them, even much later, and no lock, process or time says whether one is running:
``git prune`` takes no lock, and ``gc.pid`` of another container names a process that we cannot see.

So new objects take the way of a push (git-receive-pack(1), *Quarantine environment*) and a fetch
(git-index-pack(1): ``--keep``):

1. Git writes them to a directory that no repository knows, and borrows from the repository.
2. ``git pack-objects`` writes all that is new into one pack, also objects that the repository has already:
   it may have them only loose, or in a pack that a ``git repack`` is about to delete. If some are deleted
   meanwhile, this fails, and the caller can start again. The pack is checked here: a bad copy of an object in
   a pack would hide a good one for ever.
3. A file ``.keep`` is put into the repository, then the pack, then its index. The file stays until a ref
   contains the objects.

Why this is enough (``builtin/repack.c``, ``builtin/prune.c``, ``builtin/gc.c``):

- ``git repack`` deletes packs that it listed *before* it looked at the refs, and that had no ``.keep`` then.
  If it listed before our pack came, it does not know the name: each pack gets a new random name, because the
  usual one, the hash of the content, could be that of a pack that was there already. If it listed while
  ``.keep`` was there, it leaves the pack. If it listed later, it sees the ref.
- ``git prune`` and ``git prune-packed`` delete loose objects, and files named ``tmp_*`` in the repository.
  Neither is ours.
- ``git gc`` deletes an index without a pack, so the index comes last.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from ralph_wrap.git.command import DURABLE, Git, decode_lines, run_git
from ralph_wrap.git.oid import is_oid
from ralph_wrap.system import files

PREFIX = "ralph-wrap-save-"
"""In an object directory: what the name of a directory with new objects begins with; the owner follows."""

SUBMODULES = "-submodules"
"""In the name of an owner that copies commits of submodules: after a session, before a random part."""

_TITLE = "ralph-wrap: a save of "  # the first line of a .keep file; the owner follows
_LARGEST = 1 << 20  # bytes of a .keep file
_SHA1 = 40  # hexadecimal digits
_BLOCK = 1 << 20  # bytes
_PACKED = "packed"  # in the directory: an object directory with nothing but the finished pack
_OPTIONS = (
    *("-c", "pack.packSizeLimit=0"),  # one pack
    *("-c", "pack.writeReverseIndex=false"),
    *("-c", "core.bigFileThreshold=16m"),  # copied as they are, without a search for similar ones
)


@contextlib.contextmanager
def quarantine(objects: Path, owner: str) -> Iterator[Path]:
    """Make a directory for new objects, yield it, and remove it at the end.

    Directories that killed processes have left for the same owner are removed, too.

    Arguments:
        objects: the object directory of the repository.
        owner: a name without a slash. One process at a time works for it.

    Raises:
        OSError: the directory cannot be made.

    """
    _remove_left(objects, owner)
    directory = objects / f"{PREFIX}{owner}-{os.urandom(4).hex()}"
    directory.mkdir()
    try:
        lock = files.try_lock(directory)
        try:
            yield directory
        finally:
            if lock:
                lock.release()
    finally:
        files.remove_tree(directory)


def borrow(directory: Path, objects: Path) -> None:
    """Let git read the objects of a repository beside those in a directory (gitrepository-layout(5))."""
    (directory / "info").mkdir(parents=True, exist_ok=True)
    path = os.fspath(objects).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    (directory / "info" / "alternates").write_bytes(os.fsencode(f'"{path}"\n'))


def pack(git: Git, objects: Path, tips: Collection[str], without: Collection[str]) -> Path | None:
    """Pack the objects of some commits in the quarantine, as they are; the pack has no deltas but known ones.

    Arguments:
        git: git in the repository, with its quarantine.
        objects: the object directory of the repository.
        tips: ids of commits and tags.
        without: ids of commits that are safe already.

    Returns:
        An object directory that has only the pack, and borrows from the repository; ``None`` if there is
        nothing to pack.

    Raises:
        GitError: an object is missing or damaged, or git cannot write the pack.
        OSError: a directory cannot be made.

    """
    assert git.quarantine is not None
    packed = git.quarantine / _PACKED
    if packed.exists():
        shutil.rmtree(packed)
    (packed / "pack").mkdir(parents=True)
    borrow(packed, objects)
    revisions = "".join([*(f"{oid}\n" for oid in tips), *(f"^{oid}\n" for oid in without)]).encode()
    # A search for deltas takes long, and the next `git gc` does it. Promised objects come from the remote.
    options = ("--revs", "--non-empty", "-q", "--window=0", "--delta-base-offset", "--missing=allow-promisor")
    config = (*_OPTIONS, *DURABLE)
    run_git(git, "pack-objects", *options, packed / "pack" / "pack", config=config, stdin=revisions)
    found = next((packed / "pack").glob("pack-*.pack"), None)
    if found is None:
        return None
    digits = len(found.stem) - len("pack-")  # names of packs have the length of an object id
    name = f"pack-{os.urandom(digits // 2).hex()}"
    for path in (found, found.with_suffix(".idx")):
        path.rename(path.with_name(f"{name}{path.suffix}"))
    return packed


def enter(packed: Path, objects: Path, owner: str, tips: Sequence[str]) -> None:
    """Move a pack into the repository, with a file ``.keep``; :func:`release` removes that file.

    Arguments:
        packed: the result of :func:`pack`.
        objects: the object directory of the repository.
        owner: the name of the quarantine.
        tips: the commits whose objects are safe with this pack.

    Raises:
        OSError: a file cannot be moved.

    """
    packs = objects / "pack"
    packs.mkdir(exist_ok=True)
    for path in (packed / "pack").glob("pack-*.pack"):
        with (packs / f"{path.stem}.keep").open("x") as keep:
            keep.write("\n".join([f"{_TITLE}{owner}", *tips, ""]))
        index = path.with_suffix(".idx")
        files.fsync(path, index)
        path.rename(packs / path.name)
        index.rename(packs / index.name)
    files.fsync(packs)


def mend_loose(quarantine: Path, objects: Path) -> None:
    """Replace damaged loose objects of a repository by the whole ones of a quarantine.

    A good copy in a pack is not enough: git 2.55 still complains about an empty file beside it.

    Raises:
        OSError: a file cannot be replaced.

    """
    for whole in quarantine.glob("??/*"):
        damaged = objects / whole.parent.name / whole.name
        if damaged.is_file() and not _is_whole(damaged) and _is_whole(whole):
            files.fsync(whole)
            whole.replace(damaged)


def _is_whole(path: Path) -> bool:
    """Return whether a loose object has the hash that is its name (gitformat-loose(5))."""
    oid = path.parent.name + path.name
    digest = hashlib.sha1(usedforsecurity=False) if len(oid) == _SHA1 else hashlib.sha256()
    content = zlib.decompressobj()
    try:
        with path.open("rb") as compressed:
            while block := content.unconsumed_tail or compressed.read(_BLOCK):
                digest.update(content.decompress(block, _BLOCK))
    except (OSError, zlib.error):
        return False
    return content.eof and not content.unused_data and digest.hexdigest() == oid


def kept_tips(objects: Path, owner: str) -> set[str]:
    """Return the commits whose objects are in packs that no ``git gc`` deletes, because of :func:`enter`."""
    return {
        oid
        for keep in _keeps(objects, owner)
        if keep.with_suffix(".pack").exists() and keep.with_suffix(".idx").exists()
        for oid in _lines(keep)[1:]
        if is_oid(oid)
    }


def release(objects: Path, owner: str) -> None:
    """Remove the ``.keep`` files and directories of an owner: refs contain its objects, or none needs them.

    Raises:
        OSError: one cannot be removed.

    """
    for keep in _keeps(objects, owner):
        keep.unlink(missing_ok=True)
    _remove_left(objects, owner)


def is_working(objects: Path, owner: str) -> bool:
    """Return whether a process has a quarantine of an owner; a lock that cannot be checked counts as one."""
    try:
        return any(files.is_locked(path) for path in objects.glob(f"{PREFIX}{owner}-*"))
    except OSError:
        return True


def owners(objects: Path) -> set[str]:
    """Return the owners of all ``.keep`` files and directories in an object directory."""
    kept = {_lines(keep)[0].removeprefix(_TITLE) for keep in _keeps(objects, "")}
    left = {path.name.removeprefix(PREFIX).rpartition("-")[0] for path in objects.glob(f"{PREFIX}*")}
    return kept | left


def _keeps(objects: Path, owner: str) -> list[Path]:
    """Return the ``.keep`` files of an owner; without one, those of all owners."""
    paths = sorted((objects / "pack").glob("pack-*.keep"))
    rows = [(path, _lines(path)[0]) for path in paths]
    return [
        path for path, title in rows if (title == f"{_TITLE}{owner}" if owner else title.startswith(_TITLE))
    ]


def _lines(path: Path) -> list[str]:
    try:
        return decode_lines(files.read(path, _LARGEST)) or [""]
    except OSError:
        return [""]


def _remove_left(objects: Path, owner: str) -> None:
    for path in objects.glob(f"{PREFIX}{owner}-*"):
        if path.is_symlink() or not path.is_dir() or "-" in path.name.removeprefix(f"{PREFIX}{owner}-"):
            continue
        with contextlib.suppress(OSError):
            if lock := files.try_lock(path):
                files.remove_tree(path)
                lock.release()
