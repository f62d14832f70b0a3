"""A project with ignored files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.repo import Repo


@pytest.fixture
def app(repo: Repo) -> Repo:
    """Return a repository that ignores secrets and dependencies, and has some."""
    repo.write(".gitignore", ".env*\n!.env.example\nnode_modules/\n.ralph/\n")
    repo.write(".env.example", "KEY=\n")
    repo.commit("rules")
    repo.write(".env", "KEY=secret\n").chmod(0o600)
    repo.write("web/.env.local", "PORT=1\n")
    repo.write("web/node_modules/pkg/index.js", "1\n")
    return repo
