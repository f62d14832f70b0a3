"""The entries of an index, as git lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ralph_wrap import git
from ralph_wrap.git.index import GITLINK, HiddenEntry, IndexListing, SubmoduleEntry, list_index
from tests.git.repositories import git_in

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.git import Git
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


FILES = ("a", "b" * 7, "c" * 8, "d" * 9, f"deep/{'e' * 70}", ODD, "script")
"""Names whose entries have different numbers of zeros behind them (gitformat-index(5))."""

COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "an assumed file": (("update-index", "--assume-unchanged", "script"),),
    "a skipped file": (("update-index", "--skip-worktree", "script"),),
    "an intended file": (("add", "--intent-to-add", "intended"),),
    "a submodule": (("update-index", "--add", "--cacheinfo", f"{GITLINK},{ONE},deep/{'s' * 9}"),),
    "version 4": (("update-index", "--index-version", "4"),),
    "a split index": (("update-index", "--assume-unchanged", "script"), ("update-index", "--split-index")),
    "a long name": (
        ("update-index", "--add", "--cacheinfo", f"100644,{{blob}},{'/'.join('x' * 200 for _ in range(25))}"),
    ),
}


def _indexed(repo: Repo, tmp_path: Path) -> tuple[Git, Git]:
    """Return git that reads the index of a repository, with and without a git program."""
    for name in FILES:
        repo.write(name, executable=name == "script")
    repo.write("intended")
    repo.git("add", *FILES)
    reading = git_in(repo.path)._replace(git_dir=repo.path / ".git")
    return reading, reading._replace(env={"PATH": str(tmp_path)})


def test_an_ordinary_index_needs_no_git(repo: Repo, tmp_path: Path) -> None:
    """It has neither hidden files nor submodules, and the file itself shows that."""
    reading, without_git = _indexed(repo, tmp_path)
    assert list_index(without_git) == IndexListing(b"")
    assert [*IndexListing(git.run_git(reading, "ls-files", "-v", "-s", "-z").stdout).hidden()] == []


@pytest.mark.parametrize("commands", COMMANDS.values(), ids=COMMANDS)
def test_any_other_index_is_read_by_git(
    repo: Repo, tmp_path: Path, commands: tuple[tuple[str, ...], ...]
) -> None:
    """What git hides, and each form of an index that only git knows, is left to git."""
    reading, without_git = _indexed(repo, tmp_path)
    blob = repo.git("rev-parse", ":a").strip()
    for command in commands:
        repo.git(*(word.replace("{blob}", blob) for word in command))
    with pytest.raises(FileNotFoundError):
        list_index(without_git)
    assert list_index(reading).output == git.run_git(reading, "ls-files", "-v", "-s", "-z").stdout


@pytest.mark.parametrize("damage", ["cut", "count"])
def test_a_damaged_index_is_left_to_git(repo: Repo, tmp_path: Path, damage: str) -> None:
    """An agent may have written anything there."""
    reading, without_git = _indexed(repo, tmp_path)
    assert reading.git_dir is not None
    path = reading.git_dir / "index"
    content = path.read_bytes()
    path.write_bytes(content[:200] if damage == "cut" else content[:8] + b"\0\0\xff\xff" + content[12:])
    with pytest.raises(FileNotFoundError):
        list_index(without_git)
