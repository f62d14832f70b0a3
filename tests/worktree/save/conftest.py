"""A worktree to save."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.trees import Tree, make_tree

if TYPE_CHECKING:
    from tests.support.repo import Repo


@pytest.fixture
def tree(repo: Repo) -> Tree:
    """Return a worktree with a few files of every kind in its branch."""
    repo.write("dir/tracked.txt", "tracked\n")
    repo.write("run.sh", "#!/bin/sh\n", executable=True)
    repo.write("binary", bytes(range(256)) * 40)
    repo.write(".gitignore", "*.ignored\nbuild/\n")
    (repo.path / "link").symlink_to("file.txt")
    repo.commit("more")
    return make_tree(repo)
