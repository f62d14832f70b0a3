"""What a worktree holds: patterns as git writes them, links, and copies where no link can be made."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.errors import IsolationError
from ralph_wrap.worktree import layout
from tests.support.repo import Repo, make_repo

if TYPE_CHECKING:
    from pathlib import Path

NAMES = st.text(st.sampled_from("abc .*?[]\\-#!ß"), min_size=1, max_size=5).filter(
    lambda name: name.strip(".") and name == name.strip(" ")
)
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def cone_repo(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Return a repository that many examples share: only its patterns are written."""
    return make_repo(tmp_path_factory.mktemp("cone"))


@given(paths=PATHS)
def test_the_patterns_are_those_of_git(cone_repo: Repo, paths: list[str]) -> None:
    """``git sparse-checkout set --cone`` writes the same for the same directories."""
    subprocess.run(
        ("git", "sparse-checkout", "set", "--cone", "--skip-checks", "--stdin"),
        cwd=cone_repo.path,
        input="".join(f"{path}\n" for path in paths).encode(),
        check=True,
        capture_output=True,
    )
    theirs = (cone_repo.path / ".git" / "info" / "sparse-checkout").read_bytes()
    assert sorted(layout.cone(paths).splitlines()) == sorted(theirs.splitlines())


def test_a_directory_comes_before_its_files() -> None:
    """The last pattern that matches decides."""
    assert layout.cone(["a/b/c", "a/b", "x"]) == b"/*\n!/*/\n/a/\n!/a/*/\n/a/b/\n/x/\n"


def test_no_directory_is_the_top_alone() -> None:
    """As with ``--base fresh``."""
    assert layout.cone([]) == b"/*\n!/*/\n"


def test_a_link_that_cannot_be_made_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on FAT, whose driver answers EPERM; links inside stay links."""
    built = tmp_path / "root" / "web" / "built"
    built.mkdir(parents=True)
    (built / "file").write_text("x")
    (built / "inside").symlink_to("file")
    top = tmp_path / "top"
    top.mkdir()
    symlink = os.symlink

    def refuse(target: str, directory: Path, is_directory: bool = False) -> None:
        if directory == top / "web" / "built":
            raise PermissionError(1, "Operation not permitted")
        symlink(target, directory, is_directory)

    monkeypatch.setattr(os, "symlink", refuse)
    layout.link(top, tmp_path / "root", ["web/built"])
    copy = top / "web" / "built"
    assert (copy.is_symlink(), (copy / "file").read_text()) == (False, "x")
    assert (copy / "inside").is_symlink()


def test_nothing_is_linked_over(tmp_path: Path) -> None:
    """What the commit has stays."""
    (tmp_path / "docs").mkdir()
    with pytest.raises(IsolationError):
        layout.link(tmp_path, tmp_path, ["docs"])
