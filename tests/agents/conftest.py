"""Real agents, where they are installed."""

from __future__ import annotations

import pytest

from tests.agents.programs import DIRECTORY, IN_EVERY_TEST, PROGRAMS, Program
from tests.support.needs import skip_or_fail


@pytest.fixture(params=IN_EVERY_TEST)
def program(request: pytest.FixtureRequest) -> Program:
    """Return each real agent in turn; one that is not installed is skipped, unless it has to be there."""
    found = PROGRAMS[request.param]
    if not found.path.exists():
        skip_or_fail(f"{found.name} is not installed in {DIRECTORY}: tests/agents/install", "REQUIRE_AGENTS")
    return found


@pytest.fixture(autouse=True)
def _ended(ended: None) -> None:
    """Leave nothing running."""
