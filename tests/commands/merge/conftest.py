"""A project to merge in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.merging import project_with_files
from tests.support.repo import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """Return a repository with a few files on main."""
    return project_with_files(tmp_path / "project")
