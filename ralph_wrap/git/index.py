"""The entries of an index: submodules, and files that git does not look at."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ralph_wrap.git.command import decode, run_git, start_git
from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralph_wrap.git.command import Git
    from ralph_wrap.system import process

GITLINK = "160000"
"""The file mode of a submodule's commit."""

_LISTING = ("ls-files", "-v", "-s", "-z")
_SUBMODULE = re.compile(rb"(?:\A|\0)(.) %s ([0-9a-f]+) \d\t([^\0]+)" % GITLINK.encode())
_HIDDEN = re.compile(rb"(?:\A|\0)([a-zS]) \d+ [0-9a-f]+ \d\t([^\0]+)")


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
    """All entries of an index, as git lists them.

    Attributes:
        output: of the command that :func:`start_listing` starts.

    """

    output: bytes

    def submodules(self) -> Iterator[SubmoduleEntry]:
        """Yield the submodules; git does not look at files below them."""
        for tag, oid, path in _SUBMODULE.findall(self.output):
            yield SubmoduleEntry(decode(path), decode(oid), tag in b"Hh")

    def hidden(self) -> Iterator[HiddenEntry]:
        """Yield the files that git does not look at (git-ls-files(1): a lower-case tag, and S)."""
        for found in _HIDDEN.finditer(self.output):
            yield HiddenEntry(decode(found[2]), found[1].islower(), found[1] in b"sS")


def start_listing(git: Git) -> process.RunningCommand:
    """Start the command that lists an index."""
    return start_git(git, *_LISTING)


def list_index(git: Git) -> IndexListing:
    """Return the entries of the index.

    Raises:
        GitError: git cannot read it.

    """
    return IndexListing(run_git(git, *_LISTING).stdout)
