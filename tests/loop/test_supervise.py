"""What a signal does to the agent's processes, and what it does to ours."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.blocking_git import Gate
from tests.support.processes import STUBBORN, left, status_of
from tests.support.sessions import PROGRAM, Session, assert_ended_by, read_events
from tests.support.wait import eventually, never, seldom

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.repo import Repo

SH = ("--", "sh", "-c")
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
ROLES = ("agent", "child", "group", "session", "daemon")


def _pids(directory: Path) -> list[int]:
    return [int(path.read_text()) for path in directory.glob("[!.]*") if path.name != "ready"]


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    """Return a directory for the pids of stubborn processes."""
    directory = tmp_path / "pids"
    directory.mkdir()
    return directory


@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_nothing_of_a_deaf_agents_tree_is_left(
    repo: Repo, home: Path, pids: Path, number: signal.Signals
) -> None:
    """Forked, in another process group, in another session, orphaned: each is ended, and work is saved."""
    command = (sys.executable, STUBBORN, pids, *ROLES)
    with Session(
        repo.path, "--grace", "200ms", *SH, 'echo left > left; exec "$@"', "sh", *command
    ) as session:
        eventually((pids / "agent").exists, "the agent")
        eventually(lambda: {path.name for path in pids.glob("[!.]*")} >= set(ROLES), "its processes")
        assert len(left(home)) >= len(ROLES)
        session.send(number)
        result = session.finish()
    assert_ended_by(result, number)
    assert left(home) == {}
    assert [pid for pid in _pids(pids) if Path(f"/proc/{pid}").exists()] == []
    assert repo.show(f"{result.report['saved']}:left") == b"left\n"
    assert repo.worktrees() == []


def test_what_an_agent_left_behind_ends_with_the_session(repo: Repo, home: Path, pids: Path) -> None:
    """An agent that exits by itself may leave processes for its next iteration, but not beyond the last."""
    roles = ROLES[1:]
    leave = ("--", sys.executable, STUBBORN, pids, *roles)
    with Session(repo.path, "-n", "2", "--grace", "200ms", "--delay", "1h", *leave) as session:
        session.wait_for("iteration.ended")
        assert {path.name for path in pids.glob("[!.]*")} == {*roles, "ready"}
        assert all(Path(f"/proc/{pid}").exists() for pid in _pids(pids))
        session.send(signal.SIGTERM)
        result = session.finish()
    assert_ended_by(result, signal.SIGTERM)
    assert left(home) == {}
    (ended,) = (event for event in result.events if event["event"] == "processes.ended")
    assert ended["count"] == len(roles)


@pytest.fixture
def deaf(repo: Repo, pids: Path) -> Iterator[Session]:
    """Yield a session whose agent ignores every signal, and which would wait an hour for it."""
    with Session(repo.path, "--grace", "1h", "--", sys.executable, STUBBORN, pids, *ROLES) as session:
        eventually(lambda: {path.name for path in pids.glob("[!.]*")} >= set(ROLES), "the agent")
        yield session


def test_a_second_signal_ends_the_grace(deaf: Session, home: Path) -> None:
    """A user who asks twice does not wait for the agent."""
    deaf.send(signal.SIGTERM)
    deaf.wait_for("signal.received")
    deaf.send(signal.SIGTERM)
    assert_ended_by(deaf.finish(), signal.SIGTERM)
    assert left(home) == {}


def test_one_signal_gives_the_grace(deaf: Session) -> None:
    """Negative control: after the first one the agent is still there."""
    deaf.send(signal.SIGTERM)
    deaf.wait_for("signal.received")
    never(lambda: deaf.process.poll() is not None, "the session has ended")


def test_the_first_of_two_signals_gives_the_status(deaf: Session) -> None:
    """The second one only hurries."""
    deaf.send(signal.SIGHUP)
    deaf.wait_for("signal.received")
    deaf.send(signal.SIGINT)
    assert_ended_by(deaf.finish(), signal.SIGHUP)


def test_a_stopped_agent_is_woken_to_hear_the_signal(repo: Repo) -> None:
    """It ends in its own way, not by the end of an hour's grace."""
    agent = (
        "import os, pathlib, signal\n"
        "def end(*_):\n"
        "    pathlib.Path('left').write_text('graceful')\n"
        "    raise SystemExit\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
        "signal.pause()\n"
    )
    with Session(repo.path, "--grace", "1h", "--", sys.executable, "-c", agent) as session:
        pid = session.wait_for("agent.started")["pid"]
        eventually(lambda: "T" in Path(f"/proc/{pid}/stat").read_text().split()[2], "the agent's stop")
        session.send(signal.SIGTERM)
        result = session.finish()
    assert_ended_by(result, signal.SIGTERM)
    assert repo.show(f"{result.report['saved']}:left") == b"graceful"


def test_many_signals_at_once_lose_nothing(repo: Repo, home: Path) -> None:
    """However often the user presses Ctrl-C, saving is never skipped."""
    agent = "echo left > left; echo ready; while :; do sleep 0.05; done"
    with Session(repo.path, *SH, agent) as session:
        assert session.process.stdout is not None
        assert session.process.stdout.readline() == b"ready\n"
        for _ in range(20):
            for number in ENDING:
                if session.process.poll() is None:
                    session.send(number)
        result = session.finish()
    assert result.status in {128 + number for number in ENDING}, result.stderr
    assert repo.show(f"{result.report['saved']}:left") == b"left\n"
    assert left(home) == {}


def test_a_signal_that_was_ignored_at_the_start_stays_ignored(repo: Repo) -> None:
    """For us and for the agent: that is what nohup asks for."""
    go = repo.path / "go"
    agent = f"kill -HUP $$; echo ready; while [ ! -e {go} ]; do sleep 0.05; done"
    under = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    with Session(repo.path, "-n", "1", *SH, agent, under=under) as session:
        assert session.process.stdout is not None
        assert session.process.stdout.readline() == b"ready\n"
        session.send(signal.SIGHUP)
        never(lambda: "signal.received" in _names(session), "HUP was heard")
        go.touch()
        result = session.finish()
    assert (result.status, result.report["ended_by"]) == (0, "max-iterations")


def _names(session: Session) -> set[str]:
    return {event["event"] for event in read_events(session.directory)}


def test_a_nested_session_saves_its_work_too(repo: Repo, home: Path) -> None:
    """TERM to the outer one reaches the inner one, which is given the grace to end as any session does."""
    ready = repo.path / "ready"
    inner = f"echo inner > inner; echo > {ready}; while :; do sleep 0.05; done"
    outer = f"echo outer > outer; {PROGRAM} run -- sh -c '{inner}'; true"
    with Session(repo.path, "--grace", "20s", *SH, outer) as session:
        eventually(ready.exists, "the inner agent")
        session.send(signal.SIGTERM)
        result = session.finish()
    assert_ended_by(result, signal.SIGTERM)
    reports = list((repo.path / ".ralph" / "run" / "sessions").glob("*/report.json"))
    assert len(reports) == 2
    saved = {branch for branch in repo.branches() if branch.endswith("-wip")}
    contents = {repo.git("ls-tree", "--name-only", branch) for branch in saved}
    assert contents == {"file.txt\ninner", "file.txt\nouter"}
    assert repo.worktrees() == []
    assert left(home) == {}


def test_a_nested_session_that_is_saving_is_let_finish(repo: Repo, tmp_path: Path) -> None:
    """The outer one sends TERM to everything below it, but not to the git of another session."""
    inner = f"{PROGRAM} run -n 1 -- sh -c 'echo inner > inner'"
    with (
        Gate(tmp_path / "gate", "update-index") as gate,
        Session(repo.path, "--grace", "20s", *SH, f"{inner}; true", env=gate.env) as session,
    ):
        gate.wait()
        session.send(signal.SIGTERM)
        session.wait_for("signal.received")
        gate.open()
        result = session.finish()
    assert_ended_by(result, signal.SIGTERM)
    (saved,) = (branch for branch in repo.branches() if branch.endswith("-wip"))
    assert repo.show(f"{saved}:inner") == b"inner\n"
    assert repo.worktrees() == []


def test_an_idle_session_sleeps(repo: Repo) -> None:
    """While a silent agent works, it wakes up for a look at a request to stop, and for nothing else."""
    agent = "echo ready; exec sleep 1000"
    with Session(repo.path, "--max-time", "2h", "--idle-timeout", "1h", *SH, agent) as session:
        assert session.process.stdout is not None
        assert session.process.stdout.readline() == b"ready\n"
        seldom(lambda: status_of(session.process.pid, "voluntary_ctxt_switches"), "wake-ups")
        session.send(signal.SIGTERM)
        session.finish()
