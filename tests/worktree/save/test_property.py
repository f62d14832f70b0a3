"""For any tree, any index and any files on disk: saved work holds exactly that, and is put back as it was."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ralph_wrap.worktree.restore import restore
from tests.support.profiles import costly_examples
from tests.support.repo import make_repo
from tests.support.trees import ID, WIP, Listing, in_git, located, make_tree, on_disk, put

# Few names, so that base, index and disk meet often; every kind of byte that a path may hold.
_NAMES = st.sampled_from(
    [b"a", b"b", b"dir", b"new\nline", b"\xff\xfe", b" space ", b"-dash", b"*", b"quote\"'"]
)
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map(b"/".join)
_CONTENTS = st.one_of(
    st.sampled_from([b"", b"\n", b"same\n", b"\r\n", b"\0binary\xff"]), st.binary(max_size=40)
)
_FILES = st.tuples(st.sampled_from(["100644", "100755"]), _CONTENTS)
_LINKS = st.tuples(st.just("120000"), st.sampled_from([b"a", b"dir", b"../x", b"nowhere\xff"]))


def _without_clashes(listing: Listing) -> Listing:
    """Drop every path that would need a file to be a directory."""
    return {
        path: entry
        for path, entry in listing.items()
        if not any(path != other and path.startswith(other + b"/") for other in listing)
    }


LISTINGS = st.dictionaries(_PATHS, st.one_of(_FILES, _FILES, _LINKS), max_size=8).map(_without_clashes)
"""Directories with files and symlinks."""


@settings(
    max_examples=costly_examples(),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(base=LISTINGS, index=LISTINGS, disk=LISTINGS)
def test_restoring_gives_back_the_exact_tree(base: Listing, index: Listing, disk: Listing) -> None:
    """The saved commit holds the disk, its second parent the index, its first what was committed.

    A restore into a new worktree of the branch gives back the same files, index and state of each path.
    """
    with tempfile.TemporaryDirectory() as temporary:
        repo = make_repo(Path(temporary, "project"), empty=True)
        put(repo.path, base)
        repo.commit("base")
        tree = make_tree(repo)
        put(tree.path, index)
        tree.inside.git("add", "--all")
        put(tree.path, disk)
        assert on_disk(tree.path) == disk
        status = tree.inside.git("status", "--porcelain", "-z")
        outcome = tree.finish()
        assert outcome.kept is None
        assert not tree.path.exists()
        if base == index == disk:
            assert WIP not in repo.branches()
            return
        assert in_git(repo, WIP) == disk
        assert in_git(repo, f"{WIP}^1") == base
        parents = repo.git("rev-list", "--parents", "-1", WIP).split()[1:]
        if index == disk:
            assert len(parents) == 1
        else:
            assert in_git(repo, parents[1]) == index
        assert repo.git("fsck", "--no-dangling") == ""
        again = make_tree(repo, continued=True)
        restore(again.linked, located(repo)[0], ID)
        assert on_disk(again.path) == disk
        assert in_git(again.inside, again.inside.git("write-tree")) == index
        assert again.inside.git("status", "--porcelain", "-z") == status
