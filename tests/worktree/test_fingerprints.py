"""What a fingerprint reads while other processes change the files."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.worktree.save.fingerprints import fingerprint
from tests.git.repositories import git_in
from tests.support.repo import make_repo
from tests.support.sessions import run
from tests.support.wait import CAP

if TYPE_CHECKING:
    import pytest

    from tests.support.repo import Repo


def test_a_fifo_in_the_place_of_a_file_makes_nobody_wait(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that the agent left puts it there between our look at the file and our read."""
    path = repo.write("new", "x\n")
    lstat = Path.lstat

    def replaced_after_it(looked_at: Path) -> os.stat_result:
        found = lstat(looked_at)
        if looked_at == path and stat.S_ISREG(found.st_mode):
            path.unlink()
            os.mkfifo(path)
        return found

    monkeypatch.setattr(Path, "lstat", replaced_after_it)
    look = threading.Thread(target=fingerprint, args=(git_in(repo.path), repo.path), daemon=True)
    look.start()
    look.join(CAP)
    is_waiting = look.is_alive()
    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))  # whoever waits goes on
    look.join()
    assert (stat.S_ISFIFO(path.stat().st_mode), is_waiting) == (True, False)


def test_a_repository_without_a_commit_has_a_state(tmp_path: Path) -> None:
    """Without one, each iteration would count as progress, and no number of stalls would end the loop."""
    empty = make_repo(tmp_path / "empty", empty=True)
    before = fingerprint(git_in(empty.path), empty.path)
    assert before == fingerprint(git_in(empty.path), empty.path) != ""
    empty.write("new", "x\n")
    assert fingerprint(git_in(empty.path), empty.path) != before
    assert run(empty.path, "-n", "9", "--max-stalls", "2", "--", "true").ending == ("max-stalls", 2, 0)
