"""Signals at every moment of a session's life."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.state import report as reports
from tests.support.blocking_git import Gate
from tests.support.processes import left
from tests.support.sessions import PROGRAM, Session, assert_ended_by, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

SH = ("--", "sh", "-c")
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

each_signal = pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)


def _assert_nothing_but_records(repo: Repo, home: Path) -> None:
    assert repo.branches() == ["main"]
    assert repo.worktrees() == []
    worktrees = repo.path / ".ralph" / "worktrees"
    assert not worktrees.exists() or list(worktrees.iterdir()) == []
    assert list((repo.path / ".ralph" / "run" / "agents").iterdir()) == []
    assert left(home) == {}


@each_signal
def test_before_registration(repo: Repo, tmp_path: Path, home: Path, number: signal.Signals) -> None:
    """The agent is never started, and nothing is made that would stay."""
    with (
        Gate(tmp_path / "gate", "rev-parse") as gate,
        Session(repo.path, *SH, "touch ran", env=gate.env) as session,
    ):
        gate.wait()
        assert session.find_directory() is None
        session.send(number)
        gate.open()
        result = session.finish()
    assert_ended_by(result, number)
    assert (result.report["ended_by"], result.report["iterations"]) == ("signal", 0)
    _assert_nothing_but_records(repo, home)


def test_a_branch_without_work_is_dropped_by_the_exit_report(repo: Repo, home: Path) -> None:
    """Its last line is the command."""
    with Session(repo.path, *SH, "exec sleep 1000") as session:
        session.wait_for("agent.started")
        session.send(signal.SIGINT)
        result = session.finish()
    assert_ended_by(result, signal.SIGINT)
    assert result.directory is not None
    report = reports.read(result.directory / "report.json")
    assert isinstance(report, reports.SessionReport)
    typed = reports.drop_command(report)
    assert reports.summary(report, repo.path).endswith(f"  drop       {typed}")
    subprocess.run(("sh", "-c", typed.replace("ralph-wrap", PROGRAM, 1)), check=True, cwd=repo.path)
    _assert_nothing_but_records(repo, home)


@each_signal
@pytest.mark.parametrize("at", ["update-ref", "read-tree --reset"])
def test_during_creation(repo: Repo, tmp_path: Path, home: Path, number: signal.Signals, at: str) -> None:
    """The branch is waited for, a checkout is cut short; both are undone."""
    with Gate(tmp_path / "gate", at) as gate, Session(repo.path, *SH, "touch ran", env=gate.env) as session:
        gate.wait()
        session.send(number)
        if at != "read-tree --reset":
            gate.open()
        result = session.finish()
    assert_ended_by(result, number)
    assert (result.report["ended_by"], result.report["iterations"]) == ("signal", 0)
    _assert_nothing_but_records(repo, home)


@each_signal
def test_while_the_agent_runs(repo: Repo, home: Path, number: signal.Signals) -> None:
    """The agent gets that very signal, and what it does about it is saved."""
    agent = (
        f'trap "echo {number.name} > got; exit 0" {number.name.removeprefix("SIG")}\n'
        "echo ready; while :; do sleep 0.05; done"
    )
    with Session(repo.path, *SH, agent) as session:
        assert session.process.stdout is not None
        assert session.process.stdout.readline() == b"ready\n"
        session.send(number)
        result = session.finish()
    assert_ended_by(result, number)
    assert (result.report["ended_by"], result.report["iterations"]) == ("signal", 1)
    assert repo.show(f"{result.report['saved']}:got") == f"{number.name}\n".encode()
    assert left(home) == {}


@each_signal
def test_between_iterations(repo: Repo, home: Path, number: signal.Signals) -> None:
    """The session does not wait for the end of a long delay."""
    with Session(repo.path, "--delay", "1h", *SH, "echo left > left") as session:
        session.wait_for("iteration.ended")
        session.send(number)
        result = session.finish()
    assert_ended_by(result, number)
    assert (result.report["ended_by"], result.report["iterations"]) == ("signal", 1)
    assert repo.show(f"{result.report['saved']}:left") == b"left\n"
    assert left(home) == {}


@each_signal
@pytest.mark.parametrize("at", ["update-index", "commit-tree", "worktree remove", "rev-list --count"])
def test_during_the_end(repo: Repo, tmp_path: Path, home: Path, number: signal.Signals, at: str) -> None:
    """Saving, removing and counting go on to their end, and the status tells of the signal."""
    script = "git commit -q --allow-empty -m work; echo left > left"  # without a commit there is no count
    with (
        Gate(tmp_path / "gate", at) as gate,
        Session(repo.path, "-n", "1", *SH, script, env=gate.env) as session,
    ):
        gate.wait()
        session.send(number)
        gate.open()
        result = session.finish()
    assert_ended_by(result, number, "max-iterations")
    assert result.report["iterations"] == 1
    assert repo.show(f"{result.report['saved']}:left") == b"left\n"
    assert result.report["kept"] is None
    assert repo.worktrees() == []
    assert left(home) == {}


@pytest.mark.parametrize("at", ["update-index", "commit-tree", "worktree remove"])
def test_ctrl_c_does_not_reach_our_git(repo: Repo, tmp_path: Path, at: str) -> None:
    """The terminal sends it to our whole process group; a save in progress is not in that."""
    options = ("-n", "1", *SH, "echo left > left")
    with (
        Gate(tmp_path / "gate", at) as gate,
        Session(repo.path, *options, env=gate.env, under=("setsid",)) as session,
    ):
        gate.wait()
        assert os.getpgid(session.process.pid) == session.process.pid
        for _ in range(3):
            os.killpg(session.process.pid, signal.SIGINT)
        gate.open()
        result = session.finish()
    assert_ended_by(result, signal.SIGINT, "max-iterations")
    assert repo.show(f"{result.report['saved']}:left") == b"left\n"
    assert repo.worktrees() == []


@pytest.mark.parametrize("milliseconds", [10, 40, 80, 120, 160, 200, 240, 280, 320, 400, 500, 700])
def test_at_any_moment(repo: Repo, tmp_path: Path, home: Path, milliseconds: int) -> None:
    """Wherever TERM finds it, even before its first instruction: nothing half-made, nothing lost."""
    made = tmp_path / "made"
    agent = f"echo left > left; touch {made}; exec sleep 1000"
    under = ("timeout", "--foreground", "--preserve-status", f"{milliseconds / 1000}")
    result = run(repo.path, *SH, agent, under=under)
    assert result.status in {143, -signal.SIGTERM}, result.stderr
    assert [printed for printed in result.warnings if printed["level"] == "error"] == []
    assert repo.worktrees() == []
    assert list(repo.path.glob(".ralph/run/agents/*")) == []
    reports = [json.loads(path.read_text()) for path in repo.path.glob(".ralph/run/sessions/*/report.json")]
    named = {report[name] for report in reports for name in ("branch", "saved")}
    assert set(repo.branches()) == {"main", *named} - {None}
    if made.exists():
        assert repo.show(f"{reports[0]['saved']}:left") == b"left\n"
    assert left(home) == {}
