"""Questions about ancestors, in a history with a commit in the middle that git cannot read."""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, git_environment
from ralph_wrap.git.compare import landing_base, merge_base
from ralph_wrap.git.merge import is_ancestor
from ralph_wrap.git.objects import branches_containing
from tests.support.repo import Repo


class History(NamedTuple):
    """A first commit, from which main and side come; in main, the commit after it is damaged."""

    git: Git
    first: str
    main: str
    side: str


@pytest.fixture(params=["missing", "empty", "truncated"])
def history(repo: Repo, request: pytest.FixtureRequest) -> History:
    """Return a history with a damaged commit."""
    first = repo.head
    repo.git("checkout", "-q", "-b", "side")
    repo.write("side", "1\n")
    side = repo.commit("side")
    repo.git("checkout", "-q", "main")
    repo.write("file.txt", "changed\n")
    damaged = repo.commit("damaged")
    for number in (2, 3):
        repo.write("main", f"{number}\n")
        repo.commit(f"{number}")
    path = repo.path / ".git" / "objects" / damaged[:2] / damaged[2:]
    content = path.read_bytes()
    path.unlink()
    if request.param != "missing":
        path.write_bytes(content[:10] if request.param == "truncated" else b"")
    return History(Git(repo.path, git_environment(os.environ)), first, repo.head, side)


def test_no_ancestor_is_never_what_a_damaged_history_says(history: History) -> None:
    """Up to 2.39 git ends with 1, as for no ancestor, where a commit in the middle is missing."""
    with pytest.raises(GitError):
        is_ancestor(history.git, history.first, history.main)
    with pytest.raises(GitError):
        is_ancestor(history.git, history.side, history.main)


@pytest.mark.parametrize("find", [merge_base, landing_base])
def test_nothing_in_common_is_never_what_a_damaged_history_says(history: History, find: object) -> None:
    """Up to 2.39 git ends with 1, as for histories that have nothing in common."""
    assert callable(find)
    with pytest.raises(GitError):
        find(history.git, history.side, history.main)


def test_a_damaged_branch_does_not_contain_what_it_does_not_contain(history: History) -> None:
    """From 2.47 on git lists it with 0, whatever commit is asked for."""
    assert "main" not in branches_containing(history.git, history.side)


def test_histories_may_have_nothing_in_common(repo: Repo) -> None:
    """Then there is no commit, and no error."""
    first = repo.head
    repo.git("checkout", "-q", "--orphan", "alone")
    repo.write("file.txt", "another\n")
    alone = repo.commit("alone")
    git = Git(repo.path, git_environment(os.environ))
    assert merge_base(git, first, alone) is None
    assert landing_base(git, first, alone) is None
    assert not is_ancestor(git, first, alone)


def test_a_branch_that_is_whole_contains_its_commits(repo: Repo) -> None:
    """And an ancestor is one."""
    first = repo.head
    repo.git("branch", "side")
    repo.write("file.txt", "changed\n")
    last = repo.commit("last")
    git = Git(repo.path, git_environment(os.environ))
    assert branches_containing(git, first) == ["main", "side"]
    assert branches_containing(git, last) == ["main"]
    assert merge_base(git, first, last) == landing_base(git, first, last) == first
    assert is_ancestor(git, first, last)
    assert not is_ancestor(git, last, first)
