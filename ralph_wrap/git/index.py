"""The entries of an index: submodules, and files that git does not look at. An index as tree or commit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.git.command import DURABLE, WRITTEN_OUT, Git, decode, decode_lines, run_git

GITLINK = "160000"
"""The file mode of a submodule's commit."""

_PLAIN = b"DIRC\0\0\0\2"  # how an index of version 2 begins
_LISTING = ("ls-files", "-v", "-s", "-z")
_SUBMODULE = re.compile(rb"(?:\A|\0)(.) %s ([0-9a-f]+) \d\t([^\0]+)" % GITLINK.encode())
_CONFLICT = re.compile(rb"(?:\A|\0). \d+ [0-9a-f]+ [123]\t")
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

    @property
    def has_conflicts(self) -> bool:
        """An entry has a stage: git makes no tree of such an index."""
        return _CONFLICT.search(self.output) is not None

    def submodules(self) -> Iterator[SubmoduleEntry]:
        """Yield the submodules; git does not look at files below them."""
        for tag, oid, path in _SUBMODULE.findall(self.output) if self.output else ():
            yield SubmoduleEntry(decode(path), decode(oid), tag in b"Hh")

    def hidden(self) -> Iterator[HiddenEntry]:
        """Yield the files that git does not look at (git-ls-files(1): a lower-case tag, and S)."""
        for found in _HIDDEN.finditer(self.output) if self.output else ():
            yield HiddenEntry(decode(found[2]), found[1].islower(), found[1] in b"sS")


def list_index(git: Git) -> IndexListing:
    """Return the entries of the index.

    Raises:
        GitError: git cannot read it.

    """
    return IndexListing(run_git(git, *_LISTING).stdout)


def submodules_in(git: Git) -> list[SubmoduleEntry]:
    """Return the submodules in the index.

    Raises:
        GitError: git cannot read it.

    """
    return [*list_index(git).submodules()]


def write_tree(git: Git) -> str:
    """Store the index as a tree and return its id.

    Raises:
        GitError: the index has conflicts, or the repository lacks one of its objects.

    """
    return decode_lines(run_git(git, "write-tree", config=WRITTEN_OUT).stdout)[0]


def may_intend_to_add(index: Path, git_dir: Path) -> bool:
    """Return whether an index may have entries of ``git add --intent-to-add``, which no tree has.

    Git writes version 2 if no entry has such a flag. Of a split index, the other file may have some
    (https://git-scm.com/docs/index-format).

    Arguments:
        index: a copy of the index, which git has read.
        git_dir: the git directory that the index belongs to.

    Raises:
        OSError: the copy cannot be read.

    """
    with index.open("rb") as reading:
        return reading.read(len(_PLAIN)) != _PLAIN or any(git_dir.glob("sharedindex.*"))


def added_paths(git: Git, head: str | None) -> list[str]:
    """Return the paths in the index that a commit lacks, also those of ``git add --intent-to-add``.

    Arguments:
        head: the commit; without one these are all paths.

    Raises:
        GitError: one of them cannot be read.

    """
    options = ("-z", "--name-only", "--no-renames", "--diff-filter=A", "--ita-visible-in-index")
    without = ("--cached", "--ignore-submodules=none")
    command = ("diff-index", *options, *without, head, "--") if head else ("ls-files", "-z")
    return decode(run_git(git, *command).stdout).split("\0")[:-1]


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
