"""A worktree without a mark, which no record knows: sweep and doctor name commands that save and end it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.session import unknown_worktrees
from ralph_wrap.state.project import find_project, registries
from ralph_wrap.worktree.ownership import MARK
from tests.support.orphans import sweep
from tests.support.sessions import Session, command, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ralph_wrap.state.project import Project
    from ralph_wrap.state.registry import Registry
    from tests.support.repo import Repo
    from tests.support.sessions import Result

WORK = "echo new > new"


@pytest.fixture(autouse=True)
def _ended(ended: None) -> None:
    """Leave nothing running."""


@pytest.fixture
def worktree(repo: Repo) -> Path:
    """Return the worktree that a session has kept, without the mark that shows whose it is."""
    run(repo.path, "-n", "1", "--on-dirty", "keep", "--", "sh", "-c", WORK)
    (found,) = repo.path.glob(".ralph/worktrees/*")
    (repo.path / ".git/worktrees" / found.name / MARK).unlink()
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


def _type(repo: Repo, lines: list[str], *words: str) -> None:
    """Type the commands that have one of these words."""
    for line in lines:
        if any(word in line for word in words):
            subprocess.run(("sh", "-c", line), cwd=repo.path, check=True, stdout=subprocess.DEVNULL)


def _removes(lines: list[str]) -> bool:
    return any("worktree remove" in line for line in lines)


def _reachable(repo: Repo) -> list[str]:
    return repo.git("rev-list", "--branches").split()


def test_commits_of_a_detached_head_survive(repo: Repo, worktree: Path) -> None:
    """They get a branch first, and only the next sweep says how to remove the worktree."""
    repo.git("switch", "-q", "--detach", cwd=worktree)
    repo.git("commit", "-q", "--allow-empty", "-m", "detached", cwd=worktree)
    detached = repo.git("rev-parse", "HEAD", cwd=worktree)
    shutil.rmtree(repo.path / ".ralph" / "run")
    ((_, lines),) = _unknown(sweep(repo))
    assert not _removes(lines)
    _type(repo, lines, "commit -m")
    ((_, lines),) = _unknown(sweep(repo))
    _type(repo, lines, "worktree remove")
    assert not worktree.exists()
    assert detached in _reachable(repo)
    assert repo.show(f"ralph/{worktree.name[-4:]}-kept-1:new") == b"new\n"


def test_a_branch_of_the_user_gets_no_commit(repo: Repo, worktree: Path) -> None:
    """The agent has switched to it; what is not committed goes on a branch of its own."""
    repo.git("switch", "-q", "-c", "mine", cwd=worktree)
    before = repo.git("rev-parse", "mine")
    shutil.rmtree(repo.path / ".ralph" / "run")
    ((_, lines),) = _unknown(sweep(repo))
    _type(repo, lines, "commit -m", "worktree remove")
    assert repo.git("rev-parse", "mine") == before
    assert repo.show(f"ralph/{worktree.name[-4:]}-kept-1:new") == b"new\n"


def test_commits_that_only_the_reflog_has_survive(repo: Repo, worktree: Path) -> None:
    """As after ``git reset --hard``: each gets a branch before the worktree may go."""
    repo.git("commit", "-q", "--allow-empty", "-m", "undone", cwd=worktree)
    undone = repo.git("rev-parse", "HEAD", cwd=worktree)
    repo.git("reset", "-q", "--soft", "HEAD~", cwd=worktree)
    shutil.rmtree(repo.path / ".ralph" / "run")
    ((_, lines),) = _unknown(sweep(repo))
    assert not _removes(lines)
    _type(repo, lines, " branch ")
    assert undone in _reachable(repo)
    ((_, lines),) = _unknown(sweep(repo))
    assert _removes(lines)


def test_a_nested_repository_keeps_the_worktree(repo: Repo, worktree: Path) -> None:
    """Git deletes one in an ignored directory without a word."""
    repo.git("init", "-q", worktree / "ignored" / "inner")
    (worktree / "ignored" / ".gitignore").write_text("*\n")
    shutil.rmtree(repo.path / ".ralph" / "run")
    ((_, lines),) = _unknown(sweep(repo))
    assert not _removes(lines)
    assert any(str(worktree / "ignored/inner") in line for line in lines)


def test_commits_and_index_of_a_deleted_one_survive(repo: Repo, worktree: Path) -> None:
    """Git's entry has the only name of its detached commits, and what is staged."""
    repo.git("switch", "-q", "--detach", cwd=worktree)
    repo.git("commit", "-q", "--allow-empty", "-m", "detached", cwd=worktree)
    repo.git("add", "-A", cwd=worktree)
    detached = repo.git("rev-parse", "HEAD", cwd=worktree)
    shutil.rmtree(repo.path / ".ralph")
    ((_, lines),) = _unknown(sweep(repo))
    assert not _removes(lines)
    _type(repo, lines, "commit -m")
    ((_, lines),) = _unknown(sweep(repo))
    _type(repo, lines, "worktree remove")
    assert repo.worktrees() == []
    assert detached in _reachable(repo)
    assert repo.show(f"ralph/{worktree.name[-4:]}-kept-1:new") == b"new\n"


def test_a_session_that_starts_meanwhile_is_known(
    repo: Repo, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It adds its worktree after the records were asked for; its process may be in another pid namespace."""
    registration = repo.path / ".git/worktrees" / worktree.name
    away = repo.path.parent / "away"
    records = repo.path / ".ralph/run"
    registration.rename(away)
    records.rename(repo.path.parent / "records")
    project = find_project(repo.path, os.environ)

    def starting(found: Project) -> Iterator[Registry]:
        yield from registries(found)
        (repo.path.parent / "records").rename(records)
        away.rename(registration)

    monkeypatch.setattr(unknown_worktrees, "registries", starting)
    assert [*unknown_worktrees.unknown_worktrees(project)] == []
    assert registration.exists()


def test_it_is_not_finished_by_one_command(repo: Repo, worktree: Path) -> None:
    """Nothing proves that it is the session's, so ``--adopt`` names the same commands."""
    shutil.rmtree(repo.path / ".ralph" / "run")
    swept = sweep(repo, "--adopt", worktree.name[-4:])
    assert swept.status == 5
    assert "git -C" in swept.narration[-1]["hint"]
    assert (worktree / "new").exists()


def test_a_session_that_runs_is_known(repo: Repo) -> None:
    """Its process has its name, until it has written its record anew."""
    with Session(repo.path, "-n", "1", "--", "sh", "-c", "sleep 600") as session:
        session.wait_for("agent.started")
        record = repo.path / ".ralph/run/agents" / f"{session.directory.name[-4:]}.json"
        record.rename(repo.path.parent / "record")
        assert _unknown(sweep(repo)) == []
        (repo.path.parent / "record").rename(record)
