"""Two copies of commits into one repository at once, and a sweep beside them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.commands.sweep import sweep
from ralph_wrap.errors import GitError
from ralph_wrap.git.quarantine import owners
from ralph_wrap.state.project import find_project
from ralph_wrap.worktree.save.copy_commits import RepositoryTips, transferred
from tests.git.repositories import git_in
from tests.support.repo import Repo, make_repo

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.git import Git

SESSION = "20260102T030405Z-00aa"


def _git(repo: Repo) -> Git:
    return git_in(repo.path)._replace(git_dir=repo.path / ".git", common_dir=repo.path / ".git")


def _keeps(repo: Repo) -> list[Path]:
    return [*(repo.path / ".git/objects/pack").glob("*.keep")]


@pytest.fixture
def submodule(tmp_path: Path) -> Repo:
    """Return a repository with a commit that the project lacks."""
    made = make_repo(tmp_path / "submodule")
    made.commit("work")
    return made


def test_a_second_copy_that_fails_leaves_the_first_one(repo: Repo, submodule: Repo) -> None:
    """The pack of the first is kept until it has a ref, and no longer."""
    found = RepositoryTips(frozenset(), (submodule.head,), ())
    with transferred(_git(submodule), _git(repo), found, SESSION):
        (keep,) = _keeps(repo)
        missing = found._replace(loose=("1" * 40,))
        with pytest.raises(GitError), transferred(_git(submodule), _git(repo), missing, SESSION):
            pass
        assert _keeps(repo) == [keep]
    assert (_keeps(repo), owners(repo.path / ".git/objects")) == ([], set())


def test_a_sweep_leaves_a_copy_that_has_no_ref_yet(repo: Repo, submodule: Repo) -> None:
    """A restore copies for a session that has ended, and has no worktree."""
    found = RepositoryTips(frozenset(), (submodule.head,), ())
    with transferred(_git(submodule), _git(repo), found, SESSION):
        before = _keeps(repo)
        sweep(find_project(repo.path, dict(os.environ)))
        assert (_keeps(repo), len(before)) == (before, 1)


def test_what_a_killed_copy_has_left_goes_with_the_next_one(repo: Repo, submodule: Repo) -> None:
    """No process holds the lock of its quarantine."""
    left = repo.path / ".git/objects/pack" / f"pack-{'1' * 40}.keep"
    left.parent.mkdir(exist_ok=True)
    left.write_text(f"ralph-wrap: a save of {SESSION}-submodules01234567\n")
    found = RepositoryTips(frozenset(), (submodule.head,), ())
    with transferred(_git(submodule), _git(repo), found, SESSION):
        assert not left.exists()
