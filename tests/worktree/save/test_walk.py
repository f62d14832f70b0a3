"""The walk through the directories of a worktree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ralph_wrap.worktree.save.walk import walk
from tests.support.cancelling import cancelled

if TYPE_CHECKING:
    from pathlib import Path


def test_a_signal_ends_a_walk(tmp_path: Path) -> None:
    """A worktree can have any number of files, and after SIGTERM there is little time."""
    with pytest.raises(InterruptedError):
        walk(tmp_path, (), cancel=cancelled())
