"""``ralph-wrap stop``: every session that may be asked, from every place, and damaged requests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.commands.stop import stop
from ralph_wrap.state.advice import advice_for
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.state.project import find_project
from ralph_wrap.state.stop_request import StopMode
from ralph_wrap.system.liveness import myself
from ralph_wrap.system.log import EventLogger
from tests.support.needs import needs_pid_namespaces
from tests.support.processes import STUBBORN, status_of
from tests.support.sessions import PROGRAM, Session, command, run
from tests.support.wait import CAP, eventually, never, seldom

if TYPE_CHECKING:
    from tests.support.repo import Repo
from tests.commands.stop.asking import id_of, lines_of, stop_sessions, wait_until_ready

pytestmark = pytest.mark.usefixtures("ended")


SH = ("--", "sh", "-c")

TRAP = "trap 'echo TERM > got; exit 3' TERM; echo ready; while :; do sleep 0.02; done"
"""An agent that leaves a file when it is asked to end."""


def _orphan(repo: Repo) -> str:
    """Return the id of a session that was killed."""
    with Session(repo.path, "--", "sleep", "1000") as session:
        session.wait_for("agent.started")
        agent_id = id_of(session)
        session.send(signal.SIGKILL)
        session.process.wait()
    return agent_id


def _foreign(repo: Repo) -> Path:
    """Leave the record of a session that may be alive on another machine, and return its path."""
    identity = myself()._replace(boot_id="another boot", host="another host")._asdict()
    session = "20260102T030405Z-beef"
    record = {**identity, "version": 1, "id": "beef", "session": session, "state": "running"}
    agents = repo.path / ".ralph" / "run" / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    (agents.parent / "sessions" / session).mkdir(parents=True)
    (agents / "beef.lock").touch()
    (agents / "beef.json").write_text(json.dumps(record))
    return agents / "beef.json"


# Which sessions


def test_all_are_asked_before_any_is_waited_for(repo: Repo, tmp_path: Path) -> None:
    """Each of them hears it while the first has not ended."""
    go = tmp_path / "go"
    agent = f"trap '' TERM; echo ready; until [ -e {go} ]; do sleep 0.02; done"
    options = ("--grace", "1h", *SH, agent)
    with Session(repo.path, *options) as one, Session(repo.path, *options) as two:
        for session in (one, two):
            wait_until_ready(session)
        with subprocess.Popen(
            (PROGRAM, "stop", "--all", "--json"), cwd=repo.path, stdout=subprocess.PIPE
        ) as asking:
            for session in (one, two):
                session.wait_for("stop.requested")
            assert asking.poll() is None
            go.touch()
            stdout, _ = asking.communicate(timeout=CAP)
        rows = [
            {"id": id_of(each), "session": each.directory.name, "outcome": "stopped", "title": ""}
            for each in (one, two)
        ]
        for session in (one, two):
            assert session.finish().ending == ("stop", 1, 0)
    answer = json.loads(stdout)
    assert sorted(answer.pop("data"), key=str) == sorted(rows, key=str)
    assert answer == {"version": 1, "success": True, "tool": "stop"}


def test_only_the_named_session_is_asked(repo: Repo) -> None:
    """Twice by different ids is once."""
    with Session(repo.path, *SH, TRAP) as one, Session(repo.path, *SH, TRAP) as other:
        for session in (one, other):
            wait_until_ready(session)
        asked = stop_sessions(repo, id_of(one), one.directory.name)
        assert (asked.status, lines_of(asked)) == (0, [[one.directory.name, "stopped"]])
        never((other.directory / "stop").exists, "a request to another session")
        assert other.process.poll() is None


@pytest.mark.parametrize("arguments", [("--all",), ("--all", "--json")])
def test_no_session_is_there(repo: Repo, arguments: tuple[str, ...]) -> None:
    """That is said, and no error; nothing is made."""
    asked = stop_sessions(repo, *arguments)
    assert (asked.status, [printed["event"] for printed in asked.narration]) == (0, ["stop.needless"])
    if "--json" in arguments:
        assert json.loads(asked.stdout)["data"] == []
    assert not (repo.path / ".ralph").exists()


def test_a_session_that_has_ended_is_said(repo: Repo) -> None:
    """And is no error; nothing is asked of it."""
    done = run(repo.path, "-n", "1", "--", "true")
    assert done.directory is not None
    asked = stop_sessions(repo, done.report["id"])
    assert (asked.status, lines_of(asked)) == (0, [[done.directory.name, "ended"]])
    assert asked.narration[0]["message"] == f"session {done.directory.name} has ended already"
    assert not (done.directory / "stop").exists()


@pytest.mark.parametrize("name", ["--all", None])
def test_an_orphan_is_said_with_what_to_run(repo: Repo, name: str | None) -> None:
    """No process is left to ask, and that is no error."""
    agent_id = _orphan(repo)
    asked = stop_sessions(repo, name or agent_id)
    ((session, outcome),) = lines_of(asked)
    assert (asked.status, session[-4:], outcome) == (0, agent_id, "crashed")
    (printed,) = asked.warnings
    assert printed["hint"].endswith("ralph-wrap sweep")
    assert list(repo.path.glob(".ralph/run/sessions/*/stop")) == []


def test_a_session_that_is_killed_meanwhile_is_said(repo: Repo, tmp_path: Path) -> None:
    """Stop does not wait for ever for its end."""
    agent = ("--", sys.executable, STUBBORN, tmp_path, "agent")
    with Session(repo.path, "--grace", "1h", *agent) as session:
        eventually((tmp_path / "ready").exists, "the agent")
        with subprocess.Popen((PROGRAM, "stop", "--all"), cwd=repo.path, stdout=subprocess.PIPE) as asking:
            session.wait_for("stop.requested")
            session.send(signal.SIGKILL)
            stdout, _ = asking.communicate(timeout=CAP)
    assert (asking.returncode, stdout.split()[1]) == (0, b"crashed")


def test_a_foreign_session_is_asked_and_waited_for(repo: Repo) -> None:
    """It may be alive: its end is seen when its record leaves."""
    record = _foreign(repo)
    session = record.parents[1] / "sessions" / "20260102T030405Z-beef"
    with subprocess.Popen((PROGRAM, "stop", "beef"), cwd=repo.path, stdout=subprocess.PIPE) as asking:
        eventually((session / "stop").exists, "the request")
        never(lambda: asking.poll() is not None, "not waited for")
        record.rename(session / "record.json")
        (record.with_suffix(".lock")).unlink()
        stdout, _ = asking.communicate(timeout=CAP)
    assert (asking.returncode, stdout.decode().split()) == (0, [session.name, "stopped"])
    assert json.loads((session / "stop").read_text()) == {"version": 1, "how": "soon"}


def test_a_foreign_session_is_not_waited_for_by_rm(repo: Repo) -> None:
    """It may never answer: its files are left alone at once, and others that were named go."""
    record = _foreign(repo)
    with Session(repo.path, *SH, TRAP) as session:
        wait_until_ready(session)
        asked = command("rm", "beef", id_of(session), cwd=repo.path)
        assert session.finish().ending == ("stop", 1, 0)
    assert asked.status == 5
    assert asked.warnings[-1]["hint"] == advice_for(Verdict.FOREIGN, "beef")
    assert list(record.parents[1].glob("sessions/*-beef/stop")) == []


def test_an_unknown_session_is_an_error_and_left_alone(repo: Repo) -> None:
    """The others are stopped all the same, and JSON tells both."""
    with Session(repo.path, *SH, TRAP) as session:
        wait_until_ready(session)
        bad = repo.path / ".ralph/run/agents/beef.json"
        bad.write_text("garbage")
        asked = stop_sessions(repo, "--all", "--json")
        assert session.finish().ending == ("stop", 1, 0)
    answer = json.loads(asked.stdout)
    outcomes = {row["id"]: row["outcome"] for row in answer["data"]}
    assert outcomes == {"beef": "unknown", id_of(session): "stopped"}
    assert (asked.status, answer["success"], answer["error"]["code"]) == (125, False, "failed")
    assert bad.read_text() == "garbage"
    assert sorted(path.name for path in bad.parent.iterdir()) == ["beef.json"]


def test_a_session_that_is_not_there(repo: Repo) -> None:
    """Status 4, after the others were stopped."""
    with Session(repo.path, *SH, TRAP) as session:
        wait_until_ready(session)
        missing = "0000" if id_of(session) != "0000" else "0001"
        asked = stop_sessions(repo, missing, id_of(session))
        assert session.finish().ending == ("stop", 1, 0)
    assert (asked.status, lines_of(asked)) == (4, [[session.directory.name, "stopped"]])
    assert f"there is no session {missing}" in asked.stderr


BAD_NAMES = ["", "..", "../../../etc", "beef/../beef", "BEEF", "beef\n", "*", "bee?", "20260102T030405Z-../x"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_text_that_names_no_session_asks_none(repo: Repo, name: str) -> None:
    """It is no pattern, and no path."""
    record = _foreign(repo)
    asked = stop_sessions(repo, name)
    assert (asked.status, asked.stdout) == (4, b"")
    assert list(record.parents[1].glob("sessions/*/*")) == []


@pytest.mark.parametrize(
    "arguments", [(), ("--all", "beef"), ("--now", "--after-iteration", "beef")], ids=" ".join
)
def test_options_that_exclude_each_other(repo: Repo, arguments: tuple[str, ...]) -> None:
    """A usage error, in the envelope where that is asked for."""
    asked = stop_sessions(repo, "--json", *arguments)
    assert (asked.status, json.loads(asked.stdout)["error"]["code"]) == (2, "usage")


def test_ctrl_c_ends_the_waiting_only(repo: Repo, tmp_path: Path) -> None:
    """The session goes on ending, and that is said."""
    go = tmp_path / "go"
    agent = f"trap '' TERM; echo ready; until [ -e {go} ]; do sleep 0.02; done"
    with Session(repo.path, "--grace", "1h", *SH, agent) as session:
        wait_until_ready(session)
        with subprocess.Popen(
            (PROGRAM, "stop", "--all"), cwd=repo.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as asking:
            session.wait_for("stop.requested")
            asking.send_signal(signal.SIGINT)
            _, stderr = asking.communicate(timeout=CAP)
        assert (asking.returncode, b"we wait no longer" in stderr, b"Traceback" in stderr) == (
            130,
            True,
            False,
        )
        assert session.process.poll() is None
        go.touch()
        assert session.finish().ending == ("stop", 1, 0)


def test_ctrl_c_before_the_waiting(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is written, and that is said."""
    _foreign(repo)
    messages: list[str] = []

    def interrupted(_self: EventLogger, name: str, message: str, **_: object) -> None:
        messages.append(message)
        if name == "session.asked":
            raise KeyboardInterrupt

    monkeypatch.setattr(EventLogger, "event", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stop(find_project(repo.path, os.environ), None, StopMode.SOON)
    assert messages[1:] == ["we wait no longer; each session that was asked will stop: 20260102T030405Z-beef"]


# From where


@needs_pid_namespaces
def test_from_another_pid_namespace(repo: Repo) -> None:
    """Where no process has the session's pid."""
    apart = ("unshare", "--pid", "--fork", "--mount-proc")
    with Session(repo.path, *SH, TRAP) as session:
        wait_until_ready(session)
        asked = subprocess.run(
            (*apart, PROGRAM, "stop", "--all"), cwd=repo.path, capture_output=True, timeout=CAP, check=False
        )
        result = session.finish()
    assert (asked.returncode, asked.stdout.split()[1:2]) == (0, [b"stopped"]), asked
    assert result.ending == ("stop", 1, 0)


def test_from_a_directory_of_the_project(repo: Repo) -> None:
    """Or from anywhere with ``-C``."""
    below = repo.path / "below"
    below.mkdir()
    for arguments, cwd in (((), below), (("-C", os.fspath(repo.path)), Path("/"))):
        with Session(repo.path, *SH, TRAP) as session:
            wait_until_ready(session)
            assert command("stop", "--all", *arguments, cwd=cwd).status == 0
            assert session.finish().ending == ("stop", 1, 0)


def test_waiting_costs_nothing(repo: Repo, tmp_path: Path) -> None:
    """Stop and the session look at a file twice a second, and sleep meanwhile."""
    agent = ("--", sys.executable, STUBBORN, tmp_path, "agent")
    with Session(repo.path, "--grace", "1h", *agent) as session:
        eventually((tmp_path / "ready").exists, "the agent")
        with subprocess.Popen((PROGRAM, "stop", "--all"), cwd=repo.path) as asking:
            session.wait_for("stop.requested")
            for pid in (asking.pid, session.process.pid):
                seldom(lambda pid=pid: status_of(pid, "voluntary_ctxt_switches"), "wake-ups")  # type: ignore[misc]
            assert stop_sessions(repo, "--now", "--all").status == 0
            assert asking.wait(CAP) == 0


# A damaged request


@pytest.mark.parametrize("kind", ["garbage", "huge", "directory", "link", "fifo", "newer"])
def test_a_file_that_is_no_request_stops_nothing(repo: Repo, tmp_path: Path, kind: str) -> None:
    """It is warned of once; the session goes on, and a good request ends it, or a signal past a directory."""
    good = tmp_path / "good"
    good.write_text('{"version": 1, "how": "now"}')
    with Session(repo.path, "--delay", "50ms", "--max-stalls", "0", "-n", "0", "--", "true") as session:
        path = session.directory / "stop"
        session.wait_for("iteration.ended")
        odd = session.directory / "odd"
        if kind == "directory":
            odd.mkdir()
        elif kind == "fifo":
            os.mkfifo(odd)
        elif kind == "link":
            odd.symlink_to(good)
        else:
            odd.write_bytes(
                {"garbage": b"{", "huge": b" " * (1 << 22), "newer": b'{"version": 2, "how": "now"}'}[kind]
            )
        odd.rename(path)
        session.wait_for("stop.not_understood")
        before = len([event for event in _events(session) if event["event"] == "iteration.ended"])
        session.wait_for("iteration.ended", before + 3)
        asked = stop_sessions(repo, "--all")
        assert (asked.status, lines_of(asked)[0][1]) == (0, "stopped")
        assert path.is_dir() == (kind == "directory")
        result = session.finish()
    assert result.report["ended_by"] == ("signal" if kind == "directory" else "stop")
    assert [printed["event"] for printed in result.warnings] == ["stop.not_understood"]
    assert good.read_text() == '{"version": 1, "how": "now"}'


def _events(session: Session) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (session.directory / "events.jsonl").read_bytes().splitlines()]
