"""Real agents, where they are installed."""

from __future__ import annotations

import os

import pytest

from tests.agents.programs import DIRECTORY, PROGRAMS, Program


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Program:
    """Return each real agent in turn; one that is not installed is skipped, unless it has to be there."""
    found = PROGRAMS[request.param]
    if not found.path.exists():
        reason = f"{found.name} is not installed in {DIRECTORY}: tests/agents/install"
        if os.environ.get("REQUIRE_AGENTS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(autouse=True)
def _ended(ended: None) -> None:
    """Leave nothing running."""
