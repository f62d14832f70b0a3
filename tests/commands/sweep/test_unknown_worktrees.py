"""A worktree of a session that no record knows: sweep and doctor name it, with commands that end it."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.orphans import sweep
from tests.support.sessions import Session, command, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo
    from tests.support.sessions import Result

WORK = "echo new > new"


@pytest.fixture(autouse=True)
def _ended(ended: None) -> None:
    """Leave nothing running."""


@pytest.fixture
def worktree(repo: Repo) -> Path:
    """Return the worktree that a session has kept."""
    run(repo.path, "-n", "1", "--on-dirty", "keep", "--", "sh", "-c", WORK)
    (found,) = repo.path.glob(".ralph/worktrees/*")
    return found


def _unknown(swept: Result) -> list[tuple[str, list[str]]]:
    return [
        (event["message"], [line.partition(": ")[2] for line in event["hint"].split("\n")])
        for event in swept.warnings
        if event["event"] == "worktree.unknown"
    ]


def _check(repo: Repo) -> str:
    answer = json.loads(command("doctor", "--json", cwd=repo.path).stdout)
    (found,) = (check["found"] for check in answer["data"] if check["check"] == "worktrees")
    return str(found)


def test_the_commands_save_it_and_end_it(repo: Repo, worktree: Path) -> None:
    """Typed as they stand, one after the other."""
    assert _unknown(sweep(repo)) == []
    assert _check(repo) == "a record knows the session of each"
    shutil.rmtree(repo.path / ".ralph" / "run")
    ((message, commands),) = _unknown(sweep(repo))
    assert message == f"{worktree} is the worktree of session {worktree.name}, which no record knows"
    assert _check(repo) == message
    for line in commands:
        subprocess.run(("sh", "-c", line), cwd=repo.path, check=True, stdout=subprocess.DEVNULL)
    assert repo.show(f"ralph/{worktree.name[-4:]}:new") == b"new\n"
    assert not worktree.exists()
    assert _unknown(sweep(repo)) == []


def test_the_entry_of_a_deleted_one_goes(repo: Repo, worktree: Path) -> None:
    """``git clean -ffdx`` deletes the worktree, too; its lock keeps git's entry for ever."""
    shutil.rmtree(repo.path / ".ralph")
    ((message, (line,)),) = _unknown(sweep(repo))
    assert message.startswith(f"git still has an entry for {worktree}")
    subprocess.run(("sh", "-c", line), cwd=repo.path, check=True)
    assert repo.worktrees() == []


def test_a_session_that_runs_is_known(repo: Repo) -> None:
    """Its process has its name, until it has written its record anew."""
    with Session(repo.path, "-n", "1", "--", "sh", "-c", "sleep 600") as session:
        session.wait_for("agent.started")
        record = repo.path / ".ralph/run/agents" / f"{session.directory.name[-4:]}.json"
        record.rename(repo.path.parent / "record")
        assert _unknown(sweep(repo)) == []
        (repo.path.parent / "record").rename(record)
