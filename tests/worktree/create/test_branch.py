"""The branch of a session, which git creates while another git registers the worktree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ralph_wrap.errors import ConflictError, IsolationError
from ralph_wrap.system import files
from ralph_wrap.worktree import lock
from ralph_wrap.worktree.ownership import SessionMark
from tests.support.git_shim import shim_git
from tests.support.trees import ID, SESSION, make_tree

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

MARK = SessionMark(SESSION, f"ralph/{ID}")

_CREATE = '*" update-ref --no-deref "*)'


def _assert_nothing_is_left(repo: Repo) -> None:
    assert (repo.branches(), repo.worktrees()) == (["main"], [])
    assert not [*repo.path.glob(".git/worktrees/*"), *repo.path.glob(".ralph/worktrees/*")]


def _once_registered(repo: Repo) -> str:
    """Return shell code that waits for the registration of the worktree."""
    return f"until [ -e {repo.path}/.ralph/worktrees/{SESSION}/.git ]; do sleep 0.01; done"


def test_git_creates_the_branch_while_it_registers_the_worktree(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One does not wait for the other, and then the worktree is on the branch."""
    shim = shim_git(tmp_path / "shim", f"{_CREATE} {_once_registered(repo)} ;;")
    monkeypatch.setenv("PATH", shim)
    tree = make_tree(repo, mark=MARK)
    assert tree.inside.git("symbolic-ref", "HEAD") == f"refs/heads/ralph/{ID}"
    assert f"branch refs/heads/ralph/{ID}" in repo.git("worktree", "list", "--porcelain").split("\n")
    assert not [*tree.linked.registration.glob("logs/*")], "its reflog begins with the work in it"


@pytest.mark.parametrize("how", ["exit 1", "kill -KILL $$", '"$REAL" "$@"; kill -KILL $$'])
def test_a_branch_that_cannot_be_created_leaves_nothing(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The worktree is registered by then."""
    shim = shim_git(tmp_path / "shim", f"{_CREATE} {_once_registered(repo)}; {how} ;;")
    monkeypatch.setenv("PATH", shim)
    with pytest.raises(IsolationError, match="git update-ref"):
        make_tree(repo, mark=MARK)
    _assert_nothing_is_left(repo)


def test_a_branch_that_is_created_after_a_failure_is_deleted(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other git fails first."""
    failed = tmp_path / "failed"
    cases = f"""*" worktree add "*) touch {failed}; exit 1 ;;
    {_CREATE} until [ -e {failed} ]; do sleep 0.01; done; sleep 0.3 ;;"""
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", cases))
    with pytest.raises(IsolationError, match="git worktree"):
        make_tree(repo, mark=MARK)
    _assert_nothing_is_left(repo)


def test_without_the_lock_of_the_repository_nothing_is_left(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branch exists by then."""
    monkeypatch.setattr(lock, "_TIMEOUT", 0.5)
    with files.locked_directory(repo.path / ".git", 1.0), pytest.raises(ConflictError):
        make_tree(repo, mark=MARK)
    _assert_nothing_is_left(repo)


def test_a_branch_that_exists_already_is_kept(repo: Repo) -> None:
    """It is another owner's, although it is where ours would be."""
    repo.git("branch", f"ralph/{ID}")
    with pytest.raises(IsolationError, match="git update-ref"):
        make_tree(repo, mark=MARK)
    assert repo.branches() == ["main", f"ralph/{ID}"]
