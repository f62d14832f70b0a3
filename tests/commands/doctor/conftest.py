"""A machine and a container to examine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.doctor.world import OWN, World


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return what a host looks like."""
    return World(tmp_path / "host").root


@pytest.fixture
def box(tmp_path: Path) -> World:
    """Return what a container looks like."""
    return World(tmp_path / "box", OWN, ".dockerenv")
