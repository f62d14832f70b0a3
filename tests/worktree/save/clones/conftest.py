"""A worktree in which git ignores the dependencies, and a repository to clone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.repo import Repo, make_repo
from tests.support.trees import Tree, make_tree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tree(repo: Repo) -> Tree:
    """Return a worktree in which git ignores ``node_modules``."""
    repo.write(".gitignore", "node_modules/\n")
    repo.commit("ignore")
    return make_tree(repo)


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """Return a repository to clone, with an annotated tag and a second branch."""
    found = make_repo(tmp_path / "upstream")
    found.write(".gitignore", "built/\n")
    found.commit("first")
    found.git("branch", "other")
    with monkeypatch.context() as patched:
        patched.setenv("GIT_COMMITTER_DATE", "2020-01-01T00:00:00Z")
        found.git("tag", "-a", "-m", "t", "v1")
    return found
