"""The entries of an index: submodules, and files that git does not look at. An index as tree or commit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.git.command import DURABLE, Git, decode, decode_lines, finish_git, run_git, start_git
from ralph_wrap.system import files
from ralph_wrap.system.process import RunningCommand

GITLINK = "160000"
"""The file mode of a submodule's commit."""

_LISTING = ("ls-files", "-v", "-s", "-z")
_LARGEST = 64 << 20  # bytes of an index
_VERSION_2 = b"DIRC\0\0\0\2"
_CACHED_TREE = (
    rb"TREE.{4}\0\d+ \d+\n(.{20})"  # the first extension; without a number of entries it is invalid
)
_HEADER, _CHECKSUM = 12, 20  # bytes
_MODE, _FLAGS, _NAME = 26, 60, 62  # positions in an entry: the type of a file, its flags, its path
_GITLINK_BYTE = 0xE0
_GITLINK_MODE = b"\0\0\xe0\0"
_ASSUMED = 0x40  # the two highest flags: assume unchanged, and extended, which version 2 cannot have
_LONG_NAME = 0xFFF
_SUBMODULE = re.compile(rb"(?:\A|\0)(.) %s ([0-9a-f]+) \d\t([^\0]+)" % GITLINK.encode())
_HIDDEN = re.compile(rb"(?:\A|\0)([a-zS]) \d+ [0-9a-f]+ \d\t([^\0]+)")


def encode_paths(paths: Iterable[str]) -> bytes:
    """Return paths as git reads them with ``-z --stdin``."""
    return "".join(f"{path}\0" for path in paths).encode("utf-8", "surrogateescape")


class SubmoduleEntry(NamedTuple):
    """A submodule in an index; in a conflict, one path has up to three entries.

    Attributes:
        path: relative to the top level.
        commit: object id.
        is_checked_out: it has no conflict, and no sparse checkout leaves it out.

    """

    path: str
    commit: str
    is_checked_out: bool


class HiddenEntry(NamedTuple):
    """A file that git takes for unchanged without a look at it.

    Attributes:
        path: relative to the top level.
        is_assumed: by ``git update-index --assume-unchanged``.
        is_skipped: by ``git update-index --skip-worktree``, or by a sparse checkout.

    """

    path: str
    is_assumed: bool
    is_skipped: bool


class IndexListing(NamedTuple):
    """Entries of an index, as git lists them.

    Attributes:
        output: of ``git ls-files -v -s -z``.

    """

    output: bytes

    def submodules(self) -> Iterator[SubmoduleEntry]:
        """Yield the submodules; git does not look at files below them."""
        for tag, oid, path in _SUBMODULE.findall(self.output) if self.output else ():
            yield SubmoduleEntry(decode(path), decode(oid), tag in b"Hh")

    def hidden(self) -> Iterator[HiddenEntry]:
        """Yield the files that git does not look at (git-ls-files(1): a lower-case tag, and S)."""
        for found in _HIDDEN.finditer(self.output) if self.output else ():
            yield HiddenEntry(decode(found[2]), found[1].islower(), found[1] in b"sS")


def list_index(git: Git) -> IndexListing:
    """Return the submodules and hidden files in the index; other files may be left out.

    Raises:
        GitError: git cannot read it.

    """
    if git.git_dir is not None and _is_ordinary(git.index_file or git.git_dir / "index"):
        return IndexListing(b"")
    return IndexListing(run_git(git, *_LISTING).stdout)


def submodules_in(git: Git) -> list[SubmoduleEntry]:
    """Return the submodules in the index; an index without any costs no process of git.

    Raises:
        GitError: git cannot read it.

    """
    if git.git_dir is not None and _has_no_gitlink(git.index_file or git.git_dir / "index"):
        return []
    return [*list_index(git).submodules()]


def _has_no_gitlink(path: Path) -> bool:
    """Return whether the mode of a submodule is certainly nowhere in an index (gitformat-index(5)).

    No version of the format compresses the modes. A split index has its entries in another file.
    """
    try:
        content = files.read(path, _LARGEST)
    except OSError:
        return False
    return _GITLINK_MODE not in content and b"link" not in content


def cached_tree(path: Path) -> str | None:
    """Return the tree that an index is, ``None`` if only git knows it (gitformat-index(5): Cache tree).

    Git keeps it there after a checkout or a commit, and believes it, until an entry of the index changes.
    """
    found = re.match(_CACHED_TREE, _extensions(path) or b"", re.DOTALL)
    return None if found is None else found[1].hex()


def _is_ordinary(path: Path) -> bool:
    """Return whether an index certainly has no submodule and no hidden file."""
    extensions = _extensions(path)
    # A split index has its entries in another file, and a sparse one has directories.
    return extensions is not None and b"link" not in extensions and b"sdir" not in extensions


def _extensions(path: Path) -> bytes | None:
    """Return what follows the entries of an index without submodules and hidden files (gitformat-index(5)).

    Git writes version 2, unless *skip worktree* hides a file or a configuration wants another version. This
    function reads version 2 in less time than git starts. It knows SHA-1 alone, and leaves all else to git.

    Returns:
        ``None`` if there is such a file, or if only git can read the index.

    """
    try:
        content = files.read(path, _LARGEST)
    except OSError:
        return None
    if content[:8] != _VERSION_2:
        return None
    at = _HEADER
    for _ in range(int.from_bytes(content[8:_HEADER])):
        flags = content[at + _FLAGS : at + _NAME]
        if len(flags) < _NAME - _FLAGS or flags[0] >= _ASSUMED or content[at + _MODE] == _GITLINK_BYTE:
            return None
        length = (flags[0] & 0xF) << 8 | flags[1]
        if length == _LONG_NAME:
            return None
        at += ((_NAME + length) // 8 + 1) * 8  # one to eight zeros end a name
    return content[at:-_CHECKSUM] if len(content) >= at + _CHECKSUM else None


def write_tree(git: Git) -> str:
    """Store the index as a tree and return its id.

    Raises:
        GitError: the index has conflicts.

    """
    with start_to_write_tree(git) as running:
        return written_tree(running)


def start_to_write_tree(git: Git) -> RunningCommand:
    """Start what :func:`write_tree` does; :func:`written_tree` waits for it."""
    return start_git(git, "write-tree", config=DURABLE)


def written_tree(running: RunningCommand) -> str:
    """Wait for :func:`start_to_write_tree`, and return the id of the tree.

    Raises:
        GitError: the index has conflicts.

    """
    return decode_lines(finish_git(running, "write-tree").stdout)[0]


def is_staged(git: Git) -> bool:
    """Return whether the index differs from HEAD.

    Raises:
        GitError: git cannot compare them.

    """
    arguments = ("diff-index", "--cached", "--quiet", "--ignore-submodules=none", "HEAD")
    return run_git(git, *arguments, accept=(0, 1)).status == 1


def commit_index(git: Git, message: str) -> None:
    """Commit the index to the branch that is checked out, with the user as author, unsigned.

    Raises:
        GitError: git cannot commit.

    """
    options = ("--quiet", "--no-verify", "--no-gpg-sign", "--cleanup=verbatim", "--file=-")
    run_git(git, "commit", *options, config=DURABLE, stdin=message.encode())
