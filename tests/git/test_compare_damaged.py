"""Differences of commits that git cannot read: an answer never counts for another commit."""

from __future__ import annotations

import os

import pytest

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, git_environment
from ralph_wrap.git.compare import changes, digests
from tests.support.repo import Repo


@pytest.mark.parametrize("compare", [changes, digests])
@pytest.mark.parametrize("is_empty", [False, True], ids=["missing", "empty"])
def test_a_commit_that_cannot_be_read_is_an_error(repo: Repo, compare: object, *, is_empty: bool) -> None:
    """Git leaves it out, and may end with 0: the answers would move to other pairs."""
    assert callable(compare)
    first = repo.head
    repo.write("file.txt", "changed\n")
    damaged = repo.commit("damaged")
    repo.write("other.txt", "new\n")
    last = repo.commit("last")
    git = Git(repo.path, git_environment(os.environ))
    assert len(compare(git, [(damaged, first), (last, damaged)])) == 2
    path = repo.path / ".git" / "objects" / damaged[:2] / damaged[2:]
    path.unlink()
    if is_empty:
        path.touch()
    with pytest.raises(GitError):
        compare(git, [(damaged, first), (last, first)])
