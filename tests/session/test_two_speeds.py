"""A session whose time is short saves at once, and leaves the tidying to the next start."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

from tests.support.sessions import Session, command, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

DEAF = ("sh", "-c", "trap '' TERM; echo x > new; echo ready; while :; do sleep 0.1; done")


def _end_in_a_hurry(repo: Repo) -> tuple[Path, str]:
    """End a session by two TERMs, as PID 1 does when its time runs out; return its directory and id."""
    with Session(repo.path, "--grace", "60s", "--", *DEAF) as session:
        log = session.directory / "output.log"
        eventually(lambda: log.exists() and b"ready" in log.read_bytes(), "the agent")
        session.send(signal.SIGTERM)
        session.wait_for("signal.received")
        session.send(signal.SIGTERM)
        result = session.finish()
    assert result.status == 128 + signal.SIGTERM
    assert result.directory is not None
    return result.directory, result.directory.name[-4:]


def test_work_is_saved_and_the_worktree_left(repo: Repo) -> None:
    """A message says so, and ps shows an orphan."""
    directory, agent_id = _end_in_a_hurry(repo)
    assert repo.show(f"ralph/{agent_id}-wip:new") == b"x\n"
    assert (repo.path / ".ralph" / "worktrees" / directory.name / "new").exists()
    rows = json.loads(command("ps", "--json", cwd=repo.path).stdout)["data"]
    assert [(row["id"], row["verdict"]) for row in rows] == [(agent_id, "orphan")]
    report = json.loads((directory / "report.json").read_text())
    assert (report["ended_by"], report["saved"]) == ("signal", f"ralph/{agent_id}-wip")
    assert report["kept"] == "there was no time to remove it; the next start does"


def test_the_next_start_finishes_it(repo: Repo) -> None:
    """As it would have ended: what was saved is saved once, the report tells the first end."""
    directory, agent_id = _end_in_a_hurry(repo)
    saved = repo.git("rev-parse", f"ralph/{agent_id}-wip")
    assert run(repo.path, "-n", "1", "--", "true").status == 0
    assert repo.worktrees() == []
    assert repo.git("rev-parse", f"ralph/{agent_id}-wip") == saved
    assert repo.git("for-each-ref", "refs/ralph") == ""
    report = json.loads((directory / "report.json").read_text())
    assert (report["ended_by"], report["exit_status"], report["kept"]) == ("signal", 143, None)
    assert (directory / "record.json").exists()


def test_a_sweep_does_not_call_it_crashed(repo: Repo) -> None:
    """Its report is complete; ps says the same."""
    directory, agent_id = _end_in_a_hurry(repo)
    swept = command("sweep", cwd=repo.path)
    assert swept.stdout.decode() == f"{directory.name}  stopped  finished  ralph/{agent_id}-wip\n"


def test_two_interrupts_are_no_hurry(repo: Repo) -> None:
    """A user who types Ctrl-C twice has time: the agent gets none, but everything is tidied up."""
    deaf = ("sh", "-c", "trap '' INT; echo x > new; echo ready; while :; do sleep 0.1; done")
    with Session(repo.path, "--grace", "60s", "--", *deaf) as session:
        log = session.directory / "output.log"
        eventually(lambda: log.exists() and b"ready" in log.read_bytes(), "the agent")
        session.send(signal.SIGINT)
        session.wait_for("signal.received")
        session.send(signal.SIGINT)
        result = session.finish()
    assert (result.status, repo.worktrees()) == (128 + signal.SIGINT, [])
    assert result.report["kept"] is None
