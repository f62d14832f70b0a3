"""Whatever a test of whole sessions has started ends with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.points import Choose
from tests.support.fork_server import ForkServer, server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have time for all points: this mark counts before that of the test function."""
    for item in items:
        if item.get_closest_marker("matrix") and item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(7200), append=False)


@pytest.fixture(
    params=[False, pytest.param(True, marks=pytest.mark.matrix)],
    ids=["some", "every"],
)
def choose(request: pytest.FixtureRequest) -> Choose:
    """Return what chooses the points at which a test kills; each point only in ``make test-all``."""
    return Choose(request.param)


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
