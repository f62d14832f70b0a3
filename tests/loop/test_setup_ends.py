"""``setup``: how it ends, what it leaves running, and each command that starts it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap import Session as LibrarySession
from ralph_wrap import Settings
from ralph_wrap.state.stop_request import StopMode, ask
from tests.support.orphans import sweep
from tests.support.processes import STUBBORN, left
from tests.support.sessions import PROGRAM, Session, assert_ended_by, command, run
from tests.support.terminal import CTRL_C, Terminal
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo
from tests.loop.setup import configure, ended

SH = ("-n", "1", "--", "sh", "-c")

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@pytest.fixture(autouse=True)
def _trusted(_sealed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave to other tests what is approved, and what is not."""
    monkeypatch.setenv("RALPH_TRUST", "1")


# Signals, requests


@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_a_signal_reaches_it(repo: Repo, home: Path, number: signal.Signals) -> None:
    """That very one; what it does about it is saved, and no agent is started."""
    configure(
        repo,
        f'trap "echo {number.name} > got; exit 0" {number.name.removeprefix("SIG")}\n'
        "echo > ready; while :; do sleep 0.05; done",
    )
    with Session(repo.path, *SH, "touch $RALPH_PROJECT/../ran") as session:
        eventually(lambda: [*repo.path.glob(".ralph/worktrees/*/ready")], "the setup")
        session.send(number)
        result = session.finish()
    assert_ended_by(result, number)
    assert result.report["iterations"] == 0
    assert repo.show(f"{result.report['saved']}:got") == f"{number.name}\n".encode()
    assert not (repo.path.parent / "ran").exists()
    assert left(home) == {}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_deaf_setup_and_its_tree_are_killed(repo: Repo, home: Path, tmp_path: Path, count: int) -> None:
    """After its grace, or at once when asked again; forked, orphaned or in a session of its own."""
    pids = tmp_path / "pids"
    pids.mkdir()
    roles = ("agent", "child", "group", "session", "daemon")
    configure(repo, f"exec {sys.executable} {STUBBORN} {pids} {' '.join(roles)}")
    grace = "300ms" if count == 1 else "1h"
    with Session(repo.path, "--grace", grace, *SH, "true") as session:
        eventually((pids / "ready").exists, "its processes")
        assert len(left(home)) >= len(roles)
        session.send(signal.SIGINT)
        session.wait_for("signal.received")
        for _ in range(count - 1):
            session.send(signal.SIGINT)
        result = session.finish()
    assert_ended_by(result, signal.SIGINT)
    assert left(home) == {}
    assert repo.worktrees() == []


@pytest.mark.parametrize("option", [(), ("--now",)], ids=["stop", "now"])
def test_a_request_ends_it(repo: Repo, home: Path, option: tuple[str, ...]) -> None:
    """From anywhere, as it ends an agent."""
    configure(repo, "echo x > x; sleep 600")
    with Session(repo.path, *SH, "true") as session:
        started = session.wait_for("setup.started")
        eventually(lambda: [*repo.path.glob(".ralph/worktrees/*/x")], "its work")
        assert command("stop", *option, started["agent_id"], cwd=repo.path).status == 0
        result = session.finish()
    assert result.ending == ("stop", 0, 0)
    assert ended(result)[0][1] == "stop"
    assert repo.show(f"{result.report['saved']}:x") == b"x\n"
    assert left(home) == {}


def test_a_request_for_later_lets_it_end(repo: Repo) -> None:
    """And starts no agent."""
    configure(repo, "while ! test -e $RALPH_PROJECT/../go; do sleep 0.02; done; echo done > done")
    with Session(repo.path, *SH, "true") as session:
        started = session.wait_for("setup.started")
        directory = repo.path / ".ralph" / "run" / "sessions" / started["session_id"]
        ask(directory, StopMode.AFTER_ITERATION)
        session.wait_for("stop.requested")
        (repo.path.parent / "go").touch()
        result = session.finish()
    assert (result.ending, ended(result)) == (("stop", 0, 0), [(0, None)])
    assert repo.show(f"{result.report['saved']}:done") == b"done\n"


def test_ctrl_c_on_a_terminal(repo: Repo, home: Path) -> None:
    """Where the agent would get the terminal, the setup does not: the key comes to us, and we pass it on."""
    configure(repo, "echo ready; sleep 600")
    with Terminal(PROGRAM, "run", "--", "sh", cwd=repo.path) as terminal:
        terminal.wait_for("ready")
        terminal.type(CTRL_C)
        assert terminal.finish() == 130
    assert left(home) == {}


def test_a_kill_leaves_what_a_sweep_saves(repo: Repo, home: Path) -> None:
    """After SIGKILL only the next session or sweep can clean up."""
    configure(repo, "echo x > x; sleep 600")
    with Session(repo.path, *SH, "true") as session:
        eventually(lambda: [*repo.path.glob(".ralph/worktrees/*/x")], "its work")
        session.send(signal.SIGKILL)
        session.process.wait()
    assert sweep(repo).status == 0
    [wip] = [branch for branch in repo.branches() if branch.endswith("-wip")]
    assert (repo.show(f"{wip}:x"), repo.worktrees(), left(home)) == (b"x\n", [], {})


# What it leaves running

_SERVER = (
    "(trap '' HUP; echo $$ > server; exec sleep 600) > /dev/null 2>&1 & echo $! > $RALPH_PROJECT/../server"
)


def _is_running(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid.strip()}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_its_servers_live_as_long_as_the_session(repo: Repo, home: Path) -> None:
    """Also when an iteration is cut short, which ends what the agent has left."""
    configure(repo, _SERVER)
    server = repo.path.parent / "server"
    agent = (
        f"kill -0 $(cat {server}) && echo alive; test -e own && {{ kill -0 $(cat own) && echo own; exit; }};"
        " sleep 500 & echo $! > own; wait"
    )
    options = ("-n", "2", "--iteration-timeout", "1s", "--grace", "100ms")
    result = run(repo.path, *options, "--", "sh", "-c", agent)
    assert result.stdout == b"alive\nalive\n", result.stderr
    assert not _is_running(server.read_text())
    assert left(home) == {}


def test_an_agents_server_ends_with_a_cut_iteration(repo: Repo, home: Path) -> None:
    """The control of the test above: what the setup has not started is not spared."""
    configure(repo, "true")
    server = repo.path.parent / "server"
    agent = f"if test -e {server}; then kill -0 $(cat {server}) && echo alive; exit 0; fi; {_SERVER}; wait"
    options = ("-n", "2", "--iteration-timeout", "1s", "--grace", "100ms")
    assert run(repo.path, *options, "--", "sh", "-c", agent).stdout == b""
    assert left(home) == {}


# Each way to start it


def test_sessions_in_the_background_run_it(repo: Repo) -> None:
    """Its output is shown until the agent runs, and ``spawn`` prints nothing but the id."""
    configure(repo, "echo preparing; touch ready")
    started = command("spawn", *SH, "test -e ready", cwd=repo.path)
    assert started.status == 0, started.stderr
    assert len(started.stdout) == len("a3f2\n")
    assert "preparing\n" in started.stderr
    [path] = eventually(lambda: [*repo.path.glob(".ralph/run/sessions/*/report.json")], "the report")
    assert json.loads(path.read_text())["exit_status"] == 0


def test_one_that_fails_in_the_background_is_reported(repo: Repo) -> None:
    """By ``spawn`` itself, which started it for nothing; no worktree waits for ``rm``."""
    configure(repo, "exit 3")
    started = command("spawn", *SH, "true", cwd=repo.path)
    assert (started.status, started.stdout) == (125, b"")
    assert "setup failed with status 3" in started.stderr
    assert (repo.worktrees(), repo.branches()) == ([], ["main"])


def test_a_program_runs_its_own(repo: Repo) -> None:
    """A Python program sets it itself: it needs no approval."""
    settings = Settings(
        project=repo.path, command=("sh", "-c", "test -e ready"), setup="touch ready", max_iterations=1
    )
    with LibrarySession(settings, environ={**os.environ, "RALPH_TRUST": ""}) as session:
        assert session.run().status == 0


# Configuration


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("setup = 5", "config.toml: setup: a command is one text"),
        ('setup = ["npm", "ci"]', "config.toml: setup: a command is one text"),
        ("setup = true", "config.toml: setup: a command is one text"),
        (r'setup = "a\u0000b"', "config.toml: setup: a command cannot hold a NUL character"),
        ('setup_timeout = "soon"', "config.toml: setup_timeout: 'soon' is no duration (90s, 15m, 2h, 14d)"),
    ],
)
def test_bad_configuration(repo: Repo, row: str, said: str) -> None:
    """Named with its line; nothing is made."""
    repo.write(".ralph/config.toml", f"{row}\n")
    result = command("run", *SH, "true", cwd=repo.path)
    assert (result.status, said in result.stderr) == (2, True), result.stderr
    assert not (repo.path / ".ralph" / "run").exists()


def test_it_is_a_key_of_the_file_alone(repo: Repo) -> None:
    """An inherited variable cannot set it."""
    result = run(repo.path, *SH, "true", env={"RALPH_WRAP_SETUP": "touch ran"})
    assert "setup.started" not in result.names
    assert result.warnings[0]["event"] == "variable.ignored"
