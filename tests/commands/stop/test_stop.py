"""``ralph-wrap stop``: every way to ask a session to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.commands.stop import stop
from ralph_wrap.state.project import find_project
from ralph_wrap.state.stop_request import StopMode
from tests.support.blocking_git import Gate
from tests.support.processes import STUBBORN, left
from tests.support.sessions import PROGRAM, Session, assert_ended_by
from tests.support.wait import CAP, eventually, never

if TYPE_CHECKING:
    from tests.support.repo import Repo
    from tests.support.sessions import Result
from tests.commands.stop.asking import id_of, lines_of, stop_sessions, wait_until_ready

pytestmark = pytest.mark.usefixtures("ended")


SH = ("--", "sh", "-c")

TRAP = "trap 'echo TERM > got; exit 3' TERM; echo ready; while :; do sleep 0.02; done"
"""An agent that leaves a file when it is asked to end."""


def _requests(result: Result) -> list[str]:
    return [event["how"] for event in result.events if event["event"] == "stop.requested"]


# Each way to ask


@pytest.mark.parametrize("whole", [True, False], ids=["session id", "agent id"])
def test_the_agent_is_asked_and_its_work_saved(repo: Repo, home: Path, *, whole: bool) -> None:
    """The status is 0, whatever the agent's; stop comes back when all is done."""
    with Session(repo.path, *SH, TRAP) as session:
        wait_until_ready(session)
        asked = stop_sessions(repo, session.directory.name if whole else id_of(session))
        assert list((repo.path / ".ralph/run/agents").iterdir()) == []
        assert repo.worktrees() == []
        result = session.finish()
    assert (asked.status, lines_of(asked)) == (0, [[session.directory.name, "stopped"]])
    assert result.ending == ("stop", 1, 0)
    assert _requests(result) == ["soon"]
    assert repo.show(f"{result.report['saved']}:got") == b"TERM\n"
    assert left(home) == {}


def test_a_deaf_agent_is_killed_after_the_grace(repo: Repo, home: Path, tmp_path: Path) -> None:
    """With everything that it has started."""
    roles = ("agent", "child", "group", "session", "daemon")
    agent = ("--", sys.executable, STUBBORN, tmp_path, *roles)
    with Session(repo.path, "--grace", "300ms", *agent) as session:
        eventually((tmp_path / "ready").exists, "the agent")
        assert stop_sessions(repo, "--all").status == 0
        result = session.finish()
    assert result.ending == ("stop", 1, 0)
    assert left(home) == {}


def test_now_gives_no_grace(repo: Repo, home: Path, tmp_path: Path) -> None:
    """The agent gets no chance to do anything; what it has done is saved."""
    agent = ("--", sys.executable, STUBBORN, tmp_path, "agent", "daemon")
    with Session(repo.path, "--grace", "1h", *agent) as session:
        eventually((tmp_path / "ready").exists, "the agent")
        (worktree,) = repo.worktrees()
        (Path(worktree) / "left").write_text("left\n")
        assert stop_sessions(repo, "--now", id_of(session)).status == 0
        result = session.finish()
    assert result.ending == ("stop", 1, 0)
    assert _requests(result) == ["now"]
    assert repo.show(f"{result.report['saved']}:left") == b"left\n"
    assert left(home) == {}


@pytest.mark.parametrize("role", ["agent", "daemon"])
def test_a_stronger_request_hurries(repo: Repo, home: Path, tmp_path: Path, role: str) -> None:
    """A second request shortens a long grace: the agent's, or that of the processes it leaves."""
    agent = ("--", sys.executable, STUBBORN, tmp_path, role)
    with Session(repo.path, "--grace", "1h", "--delay", "1h", *agent) as session:
        eventually((tmp_path / "ready").exists, "the agent")
        if role == "daemon":
            session.wait_for("iteration.ended")
        with subprocess.Popen((PROGRAM, "stop", "--all"), cwd=repo.path) as asking:
            session.wait_for("stop.requested")
            never(lambda: session.process.poll() is not None, "ended without its grace")
            assert stop_sessions(repo, "--now", "--all").status == 0
            assert asking.wait(CAP) == 0
        result = session.finish()
    assert result.ending == ("stop", 1, 0)
    assert left(home) == {}


@pytest.mark.parametrize("status", [0, 3])
def test_after_iteration_lets_the_agent_finish(repo: Repo, tmp_path: Path, status: int) -> None:
    """The status is that of a stop, and no further iteration is begun."""
    go = tmp_path / "go"
    agent = f"echo ready; until [ -e {go} ]; do sleep 0.02; done; echo done > done; exit {status}"
    with Session(repo.path, *SH, agent) as session:
        wait_until_ready(session)
        with subprocess.Popen(
            (PROGRAM, "stop", "--after-iteration", id_of(session)), cwd=repo.path
        ) as asking:
            session.wait_for("stop.requested")
            never(lambda: asking.poll() is not None or session.process.poll() is not None, "ended")
            go.touch()
            assert asking.wait(CAP) == 0
        result = session.finish()
    assert result.ending == ("stop", 1, 0)
    assert _requests(result) == ["after-iteration"]
    assert repo.show(f"{result.report['saved']}:done") == b"done\n"


@pytest.mark.parametrize("option", ["--after-iteration", "--now", None])
@pytest.mark.parametrize("agent", ["true", "false"])
def test_a_pause_ends_at_once(repo: Repo, option: str | None, agent: str) -> None:
    """Between iterations there is nothing to wait for, whatever the last one was like."""
    with Session(repo.path, "--delay", "1h", "--", agent) as session:
        session.wait_for("iteration.ended")
        assert stop_sessions(repo, *filter(None, [option]), "--all").status == 0
        result = session.finish()
    assert result.ending == ("stop", 1, 0)


def test_a_request_before_the_loop_counts(repo: Repo, tmp_path: Path) -> None:
    """The agent is not even started, and leaves no branch."""
    with (
        Gate(tmp_path / "gate", "read-tree --reset") as gate,
        Session(repo.path, *SH, "touch ran", env=gate.env) as session,
    ):
        gate.wait()
        with subprocess.Popen((PROGRAM, "stop", "--all"), cwd=repo.path) as asking:
            eventually((session.directory / "stop").exists, "the request")
            gate.open()
            assert asking.wait(CAP) == 0
        result = session.finish()
    assert result.ending == ("stop", 0, 0)
    assert repo.branches() == ["main"]


def test_a_signal_that_comes_as_well_wins(repo: Repo, tmp_path: Path) -> None:
    """As it does over everything else: 128+n."""
    agent = ("--", sys.executable, STUBBORN, tmp_path, "agent")
    with Session(repo.path, "--grace", "1s", *agent) as session:
        eventually((tmp_path / "ready").exists, "the agent")
        with subprocess.Popen((PROGRAM, "stop", "--all"), cwd=repo.path) as asking:
            session.wait_for("stop.requested")
            session.send(signal.SIGTERM)
            assert asking.wait(CAP) == 0
        result = session.finish()
    assert_ended_by(result, signal.SIGTERM)


def test_a_promise_kept_in_the_last_iteration_is_reported(repo: Repo, tmp_path: Path) -> None:
    """The work is done: that matters more than the request to stop."""
    go = tmp_path / "go"
    agent = f"echo ready; until [ -e {go} ]; do sleep 0.02; done; echo '<promise>COMPLETE</promise>'"
    with Session(repo.path, *SH, agent) as session:
        wait_until_ready(session)
        with subprocess.Popen((PROGRAM, "stop", "--after-iteration", "--all"), cwd=repo.path) as asking:
            session.wait_for("stop.requested")
            go.touch()
            assert asking.wait(CAP) == 0
        result = session.finish()
    assert result.ending == ("promise", 1, 0)


def test_the_plain_project_root_can_be_stopped(repo: Repo) -> None:
    """A session without a worktree is one all the same."""
    with Session(repo.path, "--isolation", "off", *SH, TRAP) as session:
        wait_until_ready(session)
        assert stop_sessions(repo, "--all").status == 0
        assert session.finish().ending == ("stop", 1, 0)


def test_a_session_that_ends_between_two_looks(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock is gone, and it has stopped."""
    with Session(repo.path, *SH, TRAP) as session:
        wait_until_ready(session)
        [lock] = repo.path.glob(".ralph/run/agents/*.lock")

        def end(_: object) -> bool:
            eventually(lambda: not lock.exists(), "the end of the session")
            return False

        monkeypatch.setattr(import_module("ralph_wrap.commands.stop"), "_is_stopped", end)
        stop(find_project(repo.path, os.environ), None, StopMode.SOON)
        assert session.finish().ending == ("stop", 1, 0)
