"""The user's real ``git gc``, in a loop, beside sessions that start, iterate, end and are killed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.gc_storm import GcStorm, session_that_loses

if TYPE_CHECKING:
    from tests.support.repo import Repo

SECONDS = float(os.environ.get("STORM_SECONDS", "60"))
SEED = int(os.environ.get("STORM_SEED") or 20261128)


@pytest.fixture(autouse=True)
def _user(monkeypatch: pytest.MonkeyPatch, repo: Repo) -> None:
    """Have the user's clock, so that no reflog is as old as the sealed one, and a git that packs soon."""
    for name in ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"):
        monkeypatch.delenv(name)
    repo.write(".gitignore", ".ralph/worktrees/\n")
    repo.commit("rule")
    repo.git("config", "gc.auto", "200")


@pytest.mark.storm
@pytest.mark.timeout(int(SECONDS) + 900)
def test_no_line_is_lost_beside_the_git_gc_of_the_user(repo: Repo, tmp_path: Path) -> None:
    """Each line that an agent has written is there, no ref is broken, and the user's git has no complaint."""
    storm = GcStorm(repo, tmp_path / "storm", SEED)
    storm.rage(SECONDS)
    remains = storm.look()
    said = f"seed {SEED}: {storm.summary()}; {remains.summary()}"
    if report := os.environ.get("STORM_REPORT"):
        with Path(report).open("a") as file:
            file.write(f"{said}\n{remains.faults()}\n")
    assert len(remains.printed) > storm.started, "the agents did nothing"
    assert remains.faults() == {}, f"{said}\n{remains.faults()}"


@pytest.mark.storm
def test_the_storm_sees_a_session_that_loses_work(repo: Repo, tmp_path: Path) -> None:
    """Lines are lost if the end of a session is ``git worktree remove --force``."""
    storm = GcStorm(repo, tmp_path / "storm", SEED, sessions=4, command=session_that_loses)
    storm.rage(1)
    remains = storm.look()
    assert remains.lost
    assert {*remains.faults()} == {"lost"}
