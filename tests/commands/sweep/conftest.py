"""Each process that a test of a sweep has started ends with the test."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _ended(ended: None) -> None:
    """Leave nothing running."""
