"""Real agents, where they are installed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.agents.programs import DIRECTORY, PROGRAMS, Program
from tests.support.processes import end_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the ``HOME`` by which the processes of this test are known."""
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def _ended(_sealed: None, home: Path) -> Iterator[None]:
    yield
    end_all(home)
