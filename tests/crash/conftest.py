"""Whatever a test of whole sessions has started ends with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.preloaded import Preloaded
from tests.support.processes import end_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the ``HOME`` by which the processes of this test are known."""
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def _ended(_sealed: None, home: Path) -> Iterator[None]:
    yield
    end_all(home)


@pytest.fixture
def program(tmp_path: Path, _ended: None) -> Iterator[Preloaded]:
    """Return what runs the commands of a world."""
    with Preloaded(tmp_path / "output") as loaded:
        yield loaded
