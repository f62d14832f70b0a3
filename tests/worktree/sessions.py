"""Sessions whose worktree another process has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.orphans import Orphan
from tests.support.user_worktrees import Stranger, replaced

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path


def moved_away(
    left: Orphan, away: Path, registration: str, found: Stranger, way: str
) -> AbstractContextManager[None]:
    """Have another directory in the place of a session's worktree, and put everything back afterwards."""
    return replaced(left.repo, left.worktree, away, registration, found, way)
