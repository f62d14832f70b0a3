"""A worktree of a session that no record knows: ``sweep --adopt`` finishes it as that of a killed session."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.orphans import Orphan, orphan, sweep
from tests.support.sessions import PROGRAM, Session, command

if TYPE_CHECKING:
    from tests.support.repo import Repo
    from tests.support.sessions import Result

_AGENT_LOCK = "ralph-wrap-agent.lock"


@pytest.fixture(autouse=True)
def _ended(ended: None) -> None:
    """Leave nothing running."""


@pytest.fixture
def lost(repo: Repo) -> Orphan:
    """Return a killed session whose files in ``.ralph/run`` were deleted."""
    left = orphan(repo, work="echo commit > a.txt; git add a.txt; git commit -qm done; echo new > new")
    shutil.rmtree(repo.path / ".ralph" / "run")
    return left


def _hint(swept: Result) -> str:
    (hint,) = (event["hint"] for event in swept.warnings if event["event"] == "worktree.unknown")
    return str(hint)


def _type(repo: Repo, line: str) -> None:
    environ = {**os.environ, "PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}"}
    subprocess.run(("sh", "-c", line), cwd=repo.path, env=environ, check=True, stdout=subprocess.DEVNULL)


def test_the_command_of_the_hint_saves_and_removes_it(lost: Orphan) -> None:
    """Typed as it stands: what was not committed is on its branch, and the worktree is gone."""
    line = _hint(sweep(lost.repo)).rpartition(": ")[2]
    assert line == f"ralph-wrap sweep --adopt {lost.id}"
    _type(lost.repo, line)
    assert lost.repo.show(f"{lost.wip}:new") == b"new\n"
    assert lost.repo.show(f"{lost.branch}:a.txt") == b"commit\n"
    assert not lost.worktree.exists()
    assert not lost.registration.exists()
    assert (lost.report["saved"], lost.report["commits"]) == (lost.wip, 1)


def test_doctor_names_the_same_command(lost: Orphan) -> None:
    """And it is the way out that the check prints."""
    answer = json.loads(command("doctor", "--json", cwd=lost.repo.path).stdout)
    (fix,) = (check["fix"] for check in answer["data"] if check["check"] == "worktrees")
    assert fix == _hint(sweep(lost.repo))


@pytest.mark.parametrize("name", ["rm", "resume", "logs"])
def test_commands_that_need_its_record_name_the_sweep(lost: Orphan, name: str) -> None:
    """Not ``ps``, which does not know it either."""
    result = command(name, lost.id, cwd=lost.repo.path)
    assert result.status == 4
    assert result.narration[-1]["hint"].endswith(": ralph-wrap sweep")


def test_without_the_word_of_the_user_it_stays(lost: Orphan) -> None:
    """Its process may run in another container, between two iterations."""
    assert sweep(lost.repo).stdout == b""
    assert (lost.worktree / "new").exists()


def test_a_dry_run_writes_nothing(lost: Orphan) -> None:
    """It says what a sweep would do."""
    swept = sweep(lost.repo, "--dry-run", "--adopt", lost.branch, "--json")
    (entry,) = json.loads(swept.stdout)["data"]
    assert (entry["id"], entry["action"]) == (lost.id, "would finish")
    assert not lost.record.exists()
    assert lost.worktree.exists()


def test_a_branch_without_a_commit_stays(repo: Repo) -> None:
    """The event log that said whether the agent had started is gone."""
    left = orphan(repo, work="true")
    shutil.rmtree(repo.path / ".ralph" / "run")
    assert sweep(repo, "--adopt", left.id).status == 0
    assert not left.worktree.exists()
    assert left.branch in repo.branches()


def test_what_git_and_the_snapshots_have_of_a_deleted_one_is_saved(lost: Orphan) -> None:
    """As after ``rm -rf .ralph``: the entry goes, and the last snapshot becomes the saved work."""
    shutil.rmtree(lost.repo.path / ".ralph")
    assert sweep(lost.repo, "--adopt", lost.session).status == 0
    assert lost.repo.worktrees() == []
    assert lost.repo.show(f"{lost.wip}:new") == b"new\n"


def test_commits_that_only_the_reflog_has_survive(lost: Orphan) -> None:
    """A worktree's reflog goes with it."""
    lost.repo.git("reset", "-q", "--hard", "HEAD~", cwd=lost.worktree)
    undone = lost.repo.git("rev-parse", "ORIG_HEAD", cwd=lost.worktree)
    assert sweep(lost.repo, "--adopt", lost.id).status == 0
    assert not lost.worktree.exists()
    assert undone in lost.repo.git("rev-list", "--all").split()


def test_a_nested_repository_keeps_it_until_rm(lost: Orphan) -> None:
    """The session has a record now, so ``rm`` removes its worktree once the repository is elsewhere."""
    lost.repo.git("init", "-q", lost.worktree / "inner")
    lost.repo.git("commit", "-q", "--allow-empty", "-m", "own", cwd=lost.worktree / "inner")
    swept = sweep(lost.repo, "--adopt", lost.id)
    assert swept.status == 5
    line = swept.narration[-1]["hint"].rpartition("\n")[2]
    _type(lost.repo, line)
    assert not lost.worktree.exists()
    assert lost.repo.show(f"{lost.wip}:new") == b"new\n"


def test_an_agent_that_holds_its_lock_keeps_the_worktree(lost: Orphan) -> None:
    """No process here bears the session's name or variables: it may be one in another container."""
    with (lost.registration / _AGENT_LOCK).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert sweep(lost.repo, "--adopt", lost.id).status == 5
        assert (lost.worktree / "new").exists()
    assert sweep(lost.repo, "--adopt", lost.id).status == 0
    assert lost.repo.show(f"{lost.wip}:new") == b"new\n"


def test_a_process_that_holds_its_id_keeps_the_worktree(lost: Orphan) -> None:
    """It may be about to write its record anew."""
    lost.record.parent.mkdir(parents=True)
    with lost.lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert sweep(lost.repo, "--adopt", lost.id).status == 4
    assert (lost.worktree / "new").exists()


def test_a_session_that_runs_is_not_adopted(repo: Repo) -> None:
    """Its process has its name, although its record is gone for a moment."""
    with Session(repo.path, "-n", "1", "--", "sh", "-c", "sleep 600") as session:
        session.wait_for("agent.started")
        agent_id = session.directory.name[-4:]
        record = repo.path / ".ralph/run/agents" / f"{agent_id}.json"
        record.rename(repo.path.parent / "record")
        assert sweep(repo, "--adopt", agent_id).status in {4, 5}  # 5: it has written its record anew
        assert session.process.poll() is None
        assert repo.worktrees() != []
