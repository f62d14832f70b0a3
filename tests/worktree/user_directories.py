"""Directories of a user in place of ours."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.user_worktrees import Stranger

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def in_place_of(directory: Path, away: Path, found: Stranger, way: str) -> Iterator[None]:
    """Have a stranger where a directory of ours was, and fail if anything happens to it."""
    if os.path.lexists(directory):
        directory.rename(away)
    with found.put(directory, way):
        before = found.contents(directory)
        yield
        assert found.contents(directory) == before
    if away.exists():
        away.rename(directory)
