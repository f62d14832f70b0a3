"""A directory for copies of a worktree's index."""

from __future__ import annotations

import contextlib
import os

from ralph_wrap.system import deferred

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def scratch_in(registration: Path) -> Iterator[Path]:
    """Yield a new directory in a worktree's registration, which git deletes with it."""
    directory = registration / f"ralph-wrap-{os.urandom(4).hex()}"
    directory.mkdir()
    try:
        yield directory
    finally:
        if directory.exists():  # the worktree stays
            deferred.shutil.rmtree(directory, ignore_errors=True)
