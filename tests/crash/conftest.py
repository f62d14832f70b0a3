"""Whatever a test of whole sessions has started ends with it."""

from __future__ import annotations

import pytest

from tests.support.fork_server import ForkServer, server


@pytest.fixture(autouse=True)
def _ended(ended: None) -> None:
    """Leave nothing running."""


@pytest.fixture
def program() -> ForkServer:
    """Return what runs the commands of a world."""
    return server()
