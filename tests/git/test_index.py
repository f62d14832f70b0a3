"""The entries of an index, as git lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap import git
from ralph_wrap.git.index import GITLINK, HiddenEntry, IndexListing, SubmoduleEntry, list_index
from tests.git.repositories import git_in

if TYPE_CHECKING:
    from tests.support.repo import Repo

ODD = "a b\n\udcff"
ONE, TWO, THREE = "1" * 40, "2" * 40, "3" * 40


def test_submodules_of_a_real_index(repo: Repo) -> None:
    """A hidden one is checked out; one with a conflict, or outside a sparse checkout, is not."""
    for path in (f"vendor/{ODD}", "assumed", "outside"):
        repo.git("update-index", "--add", "--cacheinfo", f"{GITLINK},{ONE},{path}")
    repo.git("update-index", "--assume-unchanged", "assumed")
    repo.git("update-index", "--skip-worktree", "outside")
    sides = "".join(f"{GITLINK} {oid} {stage}\tboth\n" for stage, oid in enumerate((ONE, TWO, THREE), 1))
    git.run_git(git_in(repo.path), "update-index", "--index-info", stdin=sides.encode())
    found = [*list_index(git_in(repo.path)).submodules()]
    assert found == [
        SubmoduleEntry("assumed", ONE, is_checked_out=True),
        *(SubmoduleEntry("both", oid, is_checked_out=False) for oid in (ONE, TWO, THREE)),
        SubmoduleEntry("outside", ONE, is_checked_out=False),
        SubmoduleEntry(f"vendor/{ODD}", ONE, is_checked_out=True),
    ]


def test_hidden_files_of_a_real_index(repo: Repo) -> None:
    """Both flags, alone and together; a file without a flag is not among them."""
    for path in ("seen", ODD, "skipped", "twice", "H 160000 file"):
        repo.write(path)
    repo.commit()
    repo.git("update-index", "--assume-unchanged", ODD, "twice")
    repo.git("update-index", "--skip-worktree", "skipped", "twice")
    listing = list_index(git_in(repo.path))
    assert sorted(listing.hidden()) == [
        HiddenEntry(ODD, is_assumed=True, is_skipped=False),
        HiddenEntry("skipped", is_assumed=False, is_skipped=True),
        HiddenEntry("twice", is_assumed=True, is_skipped=True),
    ]
    assert [*listing.submodules()] == []


def test_an_empty_index_has_no_entries() -> None:
    """Git prints nothing for it."""
    listing = IndexListing(b"")
    assert ([*listing.submodules()], [*listing.hidden()]) == ([], [])
