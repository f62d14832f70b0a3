"""A project to read a configuration in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.config.approvals import SETUP
from tests.config.configured_project import ConfiguredProject

if TYPE_CHECKING:
    from tests.support.repo import Repo


@pytest.fixture
def configured(tmp_path: Path) -> ConfiguredProject:
    """Return an empty project, and another directory to type in."""
    made = ConfiguredProject(tmp_path / "root", tmp_path / "cwd")
    made.root.mkdir()
    made.cwd.mkdir()
    return made


@pytest.fixture
def app(repo: Repo) -> Repo:
    """Return a repository that wants to run a command."""
    repo.write(".ralph/config.toml", f'setup = "{SETUP}"\n')
    return repo
