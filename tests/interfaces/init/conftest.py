"""Where PID 1 runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.pid1 import Container

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a directory that git knows nothing of."""
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture
def inside(project: Path) -> Iterator[Container]:
    """Return a container that idles."""
    with Container(project) as container:
        container.rest()
        yield container
