"""Whatever a test of whole sessions has started ends with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.preloaded import Preloaded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _ended(ended: None) -> None:
    """Leave nothing running."""


@pytest.fixture
def program(tmp_path: Path, _ended: None) -> Iterator[Preloaded]:
    """Return what runs the commands of a world."""
    with Preloaded(tmp_path / "output") as loaded:
        yield loaded
