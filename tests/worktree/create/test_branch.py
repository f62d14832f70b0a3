"""The branch of a session, and the registration of a worktree on it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.errors import ConflictError, IsolationError, RalphError
from ralph_wrap.system import files
from ralph_wrap.worktree import lock
from ralph_wrap.worktree.ownership import MARK, SessionMark
from tests.support.git_shim import shim_git
from tests.support.trees import ID, SESSION, make_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo

OWN = SessionMark(SESSION, f"ralph/{ID}")

_CREATE = '*" update-ref --no-deref "*)'


def _assert_nothing_is_left(repo: Repo) -> None:
    assert (repo.branches(), repo.worktrees()) == (["main"], [])
    assert not [*repo.path.glob(".git/worktrees/*"), *repo.path.glob(".ralph/worktrees/*")]


def _after(first: Callable[..., object], then: Callable[..., Any]) -> Callable[..., Any]:
    def both(*arguments: Any, **options: Any) -> Any:
        first(*arguments, **options)
        return then(*arguments, **options)

    return both


def test_the_worktree_of_a_new_branch_is_on_it(repo: Repo) -> None:
    """Git lists it as on its branch, and the reflog is empty."""
    tree = make_tree(repo, mark=OWN)
    assert tree.inside.git("symbolic-ref", "HEAD") == f"refs/heads/ralph/{ID}"
    assert f"branch refs/heads/ralph/{ID}" in repo.git("worktree", "list", "--porcelain").split("\n")
    assert not [*tree.linked.registration.glob("logs/*")], "its reflog begins with the work in it"


@pytest.mark.parametrize("how", ["exit 1", "kill -KILL $$", '"$REAL" "$@"; kill -KILL $$'])
def test_a_branch_that_cannot_be_created_leaves_nothing(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Git may have created it before it was killed."""
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", f"{_CREATE} {how} ;;"))
    with pytest.raises(IsolationError, match="git update-ref"):
        make_tree(repo, mark=OWN)
    _assert_nothing_is_left(repo)


@pytest.mark.parametrize("name", ["locked", "commondir", MARK, "HEAD", ".git", "gitdir"])
def test_a_registration_that_cannot_be_written_leaves_nothing(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The disk is full at one of its files: an error, as falling back would work on the same disk."""

    def filling(path: Path, *_: object, **__: object) -> None:
        if path.name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))

    for function in ("create", "replace"):
        monkeypatch.setattr(files, function, _after(filling, getattr(files, function)))
    with pytest.raises(RalphError, match=rf"No space left on device: .*{name}; the disk of") as raised:
        make_tree(repo, mark=OWN)
    assert not isinstance(raised.value, IsolationError)
    monkeypatch.undo()
    _assert_nothing_is_left(repo)


def test_without_the_lock_of_the_repository_nothing_is_left(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branch exists by then."""
    monkeypatch.setattr(lock, "_TIMEOUT", 0.5)
    with files.locked_directory(repo.path / ".git", 1.0), pytest.raises(ConflictError):
        make_tree(repo, mark=OWN)
    _assert_nothing_is_left(repo)


def test_a_branch_that_exists_already_is_kept(repo: Repo) -> None:
    """It is another owner's, although it is where ours would be."""
    repo.git("branch", f"ralph/{ID}")
    with pytest.raises(IsolationError, match="git update-ref"):
        make_tree(repo, mark=OWN)
    assert repo.branches() == ["main", f"ralph/{ID}"]
