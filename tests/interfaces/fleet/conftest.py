"""A remote and workers of one run, as an engine starts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interfaces.fleet.runs import FleetRun
from tests.support.repo import Repo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def fleet_run(repo: Repo, tmp_path: Path) -> Iterator[FleetRun]:
    """Return a project with a bare remote, on which no run is yet."""
    repo.write(".gitignore", ".ralph/\n")
    repo.commit("a project")
    remote = tmp_path / "remote.git"
    repo.git("clone", "-q", "--bare", str(repo.path), str(remote))
    repo.git("remote", "add", "origin", str(remote))
    run = FleetRun(repo, Repo(remote), tmp_path)
    yield run
    run.end()
