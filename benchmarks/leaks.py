"""One look at what is outside a workspace, as after each iteration, against bare ``git status`` there."""

from __future__ import annotations

import statistics
import subprocess
import time
from typing import TYPE_CHECKING

from scenarios import Verdict, in_turns, make_repository

from ralph_wrap.git import Git
from ralph_wrap.system.log import Log
from ralph_wrap.worktree.leaks.monitor import LeakMonitor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = 20_000
LIMIT = 50.0  # milliseconds
_RACY = 1.1  # seconds


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure it with nothing changed, which is the usual case."""
    size = files or FILES
    repository = make_repository(directory / "leaks", size)
    root = repository.path
    # Files as old as the index are compared with it by content each time, until git writes it again
    # (git's racy-git.txt): as in a clone of this very second, and in no other.
    time.sleep(_RACY)
    repository.git("status", "--short")
    with (directory / "narrated").open("wb") as narrated:
        leak_monitor = LeakMonitor(
            Git(root, dict(repository.environ)),
            root=root,
            common_dir=root / ".git",
            workspace=root / ".ralph" / "worktrees" / "20260102T030405Z-a3f2",
            branch="ralph/a3f2",
            log=Log(narrated.fileno(), terminal=False, colour=False),
            stopped=lambda: False,
        )

        def ours() -> float:
            begun = time.perf_counter()
            leak_monitor.look("meanwhile")
            return (time.perf_counter() - begun) * 1000

        def theirs() -> float:
            begun = time.perf_counter()
            subprocess.run(
                ("git", "--no-optional-locks", "status", "--porcelain", "--untracked-files=all"),
                cwd=root,
                env=repository.environ,
                stdout=subprocess.PIPE,
                check=True,
            )
            return (time.perf_counter() - begun) * 1000

        mine, others = in_turns(repeat or 15, ours, theirs)
    if leak_monitor.found or (directory / "narrated").stat().st_size:
        raise RuntimeError("something was found where nothing has changed")
    detail = f"bare git status {statistics.median(others):.1f} ms, {len(mine)} times"
    yield Verdict(f"one look outside, {size:,} files", statistics.median(mine), LIMIT, " ms", detail)
