"""Whatever a test of whole sessions has started ends with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import sampling
from tests.support.fork_server import ForkServer, server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have time for all points."""
    for item in items:
        if sampling.EVERY_POINT and item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(7200), append=False)


@pytest.fixture(autouse=True)
def _ended(ended: None) -> None:
    """Leave nothing running."""


@pytest.fixture(autouse=True)
def _key(_ended: None, home: Path) -> None:
    """Have the user's key, which only the first of several sessions makes: each has the same points."""
    key = home / "state" / "ralph-wrap" / "key"
    key.parent.mkdir(parents=True, mode=0o700)
    key.write_bytes(bytes(32))
    key.chmod(0o600)


@pytest.fixture
def program() -> ForkServer:
    """Return what runs the commands of a world."""
    return server()
