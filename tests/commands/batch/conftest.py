"""A project with three tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.commands.batch.batches import Batch

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo


@pytest.fixture(autouse=True)
def _ended(ended: None) -> None:
    """Leave nothing running."""


@pytest.fixture
def batch(repo: Repo, tmp_path: Path) -> Batch:
    """Return a project with three tasks."""
    return Batch.make(repo, tmp_path)
