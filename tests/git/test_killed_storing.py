"""Git is killed while it stores many files: what it leaves belongs to nobody, and is used by the next git."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.errors import GitError
from ralph_wrap.git.status import stage_all, stage_paths
from tests.git.repositories import git_in
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo

FILES = 4000


def _stored(objects: Path) -> set[Path]:
    """Return the objects that are whole, or the directories with objects that nobody finds."""
    return {*objects.glob("??/*"), *objects.glob("tmp_objdir-*/??/*")}


def _kill_git() -> None:
    for task in Path("/proc/self/task").glob("*/children"):  # each thread has its own
        for pid in map(int, task.read_text().split()):
            if Path(f"/proc/{pid}/comm").read_text() == "git\n":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _store_and_kill(repo: Repo, store: Callable[[], GitError | None]) -> None:
    """Kill git after it has stored something, and before it has stored everything."""
    objects = repo.path / ".git" / "objects"
    before, failures = _stored(objects), list[GitError | None]()
    thread = threading.Thread(target=lambda: failures.append(store()))
    thread.start()
    eventually(lambda: len(_stored(objects) - before) > 20, "the first objects")
    while thread.is_alive():
        _kill_git()
        thread.join(0.01)
    assert failures[0] is not None


def test_no_directory_stays_that_nobody_knows(repo: Repo) -> None:
    """``tmp_objdir-*`` could be that of any git, and holds all objects that were stored."""
    for number in range(FILES):
        repo.write(f"new/{number}", f"{number}\n")
    git, objects = git_in(repo.path), repo.path / ".git" / "objects"
    _store_and_kill(repo, lambda: stage_paths(git, [f"new/{number}" for number in range(FILES)]))
    (repo.path / ".git" / "index.lock").unlink(missing_ok=True)
    _store_and_kill(repo, lambda: stage_all(git, exclude=()))
    assert [*objects.glob("tmp_objdir-*")] == []
    assert len(_stored(objects)) > 20
