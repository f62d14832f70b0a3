"""A worktree with submodules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.submodules import Project, make_project
from tests.support.trees import Tree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose main checkout has its submodules."""
    return make_project(tmp_path / "world")


@pytest.fixture
def tree(project: Project) -> Tree:
    """Return a worktree of it in which they are initialised."""
    return project.tree()
