"""How a worktree and its registration name each other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.git import pointer

if TYPE_CHECKING:
    from tests.support.repo import Repo

NAMES = st.text(st.characters(exclude_characters="/\0\n", exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name not in {".", ".."}
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda names: Path("/absent", *names))


@given(PATHS, PATHS)
def test_a_git_file_is_read_as_it_was_written(git_dir: Path, directory: Path) -> None:
    """With an absolute path, and with a relative one."""
    for named in (git_dir, os.path.relpath(git_dir, directory)):
        content = os.fsdecode(pointer.git_file_content(named))
        assert pointer.target(content) == str(named)
        assert pointer.git_dir_in(content, directory) == git_dir


@given(st.text())
def test_what_an_agent_wrote_names_some_path(content: str) -> None:
    """Nothing in it stops a sweep."""
    assert pointer.git_dir_in(content, Path("/absent")).is_absolute()


@pytest.mark.parametrize("content", ["", "gitdir:/x\n", "ref: refs/heads/main\n"])
def test_another_file_holds_no_target(content: str) -> None:
    """A message shows a path only where there is one."""
    assert pointer.target(content) is None


def test_git_and_we_agree(repo: Repo, tmp_path: Path) -> None:
    """Each of the two files of a worktree that git has made names the other."""
    directory = tmp_path / "beside"
    repo.git("worktree", "add", "--quiet", "--detach", str(directory))
    registration = repo.path / ".git" / "worktrees" / "beside"
    assert pointer.read(directory) == registration
    assert pointer.git_dir_of(directory) == registration
    assert pointer.git_file_of(registration) == directory / ".git"
    assert (registration / pointer.BACK).read_bytes() == pointer.gitdir_content(directory)
    assert pointer.common_dir_of(registration) == repo.path / ".git"


def test_the_main_checkout_has_its_repository_inside(repo: Repo) -> None:
    """Its ``.git`` is no file."""
    assert pointer.git_dir_of(repo.path) == repo.path / ".git"
    with pytest.raises(OSError, match="regular file"):
        pointer.read(repo.path)


def test_a_directory_that_was_moved_belongs_elsewhere(tmp_path: Path) -> None:
    """A relative path leads from where it belongs."""
    (tmp_path / ".git").write_bytes(pointer.git_file_content("../repository"))
    assert pointer.read(tmp_path, Path("/absent/tree")) == Path("/absent/repository")


def test_a_symlink_is_not_read(tmp_path: Path) -> None:
    """An agent could have it lead to a file of the user's."""
    (tmp_path / "mine").write_bytes(pointer.git_file_content("/absent"))
    (tmp_path / ".git").symlink_to("mine")
    with pytest.raises(OSError, match="symbolic links"):
        pointer.read(tmp_path)


def test_a_loop_of_symlinks_is_a_path_like_any_other(tmp_path: Path) -> None:
    """``Path.resolve()`` raises an error of its own for it."""
    (tmp_path / "loop").symlink_to("loop")
    assert pointer.real(tmp_path / "loop").name == "loop"


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"/project/.ralph/worktrees/one/.git\n", True),
        (b"/elsewhere/.ralph/worktrees/one/.git\n", True),
        (b"/project/.ralph/worktrees/other/.git\n", False),
        (b"/project/my.ralph/worktrees/one/.git\n", False),
        (b"/project/.ralph/worktrees/one/.git", False),
        (b"", False),
    ],
)
def test_a_mount_changes_only_the_beginning(content: bytes, named: bool) -> None:
    """A project is mounted at one path in a container, and at another outside of it."""
    directory = Path("/project/.ralph/worktrees/one")
    assert pointer.is_below_some_mount(content, directory, parts=3) == named
