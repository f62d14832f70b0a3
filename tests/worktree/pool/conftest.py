"""A project with a pool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.repo import Repo
from tests.worktree.pool.filling import configure, fill, settle


@pytest.fixture
def project(repo: Repo, tmp_path: Path) -> Iterator[Repo]:
    """Return a repository with a pool of one, filled, and wait in the end until no process fills it."""
    repo.write(".gitignore", ".ralph/\nbuild/\n*.log\n")
    for name in ("same", "changed", "removed", "dir/inner"):
        repo.write(name, f"{name}\n")
    repo.commit("files")
    (repo.path / ".ralph").mkdir()
    configure(repo, "pool = 1")
    fill(repo)
    yield repo
    settle(tmp_path)
