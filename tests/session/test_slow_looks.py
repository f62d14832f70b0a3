"""A look at a large worktree takes long: nothing else of the loop waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.blocking_git import Gate
from tests.support.machines import claim_of
from tests.support.sessions import Session, command
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

SH = ("--", "sh", "-c")
TRUST = {"RALPH_TRUST": "1"}
WORKS = "echo new > new; exec sleep 1000"


@pytest.mark.parametrize("limit", ["--iteration-timeout", "--idle-timeout", "--max-time"])
def test_a_limit_of_time_does_not_wait_for_the_look_of_a_beat(
    repo: Repo, remote: Repo, tmp_path: Path, limit: str
) -> None:
    """The agent ends in time, and what the look has not brought is saved at the end."""
    repo.write(".ralph/config.toml", 'remote_beat = "1s"\n')
    with Gate(tmp_path / "gate", "update-index") as gate:
        options = ("--remote", "origin", "-n", "1", limit, "3s")
        with Session(repo.path, *options, *SH, WORKS, env=gate.env | TRUST) as session:
            gate.wait()
            done = session.finish()
    assert done.status == 124, done.stderr
    agent_id = done.report["id"]
    assert repo.show(f"ralph/{agent_id}-wip:new") == b"new\n"
    assert f"refs/heads/ralph/{agent_id}-wip" in remote.git("for-each-ref", "--format=%(refname)")


@pytest.mark.parametrize("script", [WORKS, "echo new > new"], ids=["of a beat", "after an iteration"])
@pytest.mark.parametrize("mode", [(), ("--now",)], ids=["", "now"])
@pytest.mark.usefixtures("remote")
def test_a_request_to_stop_does_not_wait_for_the_look(
    repo: Repo, tmp_path: Path, script: str, mode: tuple[str, ...]
) -> None:
    """The session ends, and its work is saved."""
    repo.write(".ralph/config.toml", 'remote_beat = "5s"\n')
    with Gate(tmp_path / "gate", "update-index") as gate:
        options = ("--remote", "origin", "-n", "2")
        with Session(repo.path, *options, *SH, script, env=gate.env | TRUST) as session:
            gate.wait()
            asked = command("stop", *mode, session.directory.name, cwd=repo.path)
            done = session.finish()
    assert (asked.status, done.status) == (0, 0), done.stderr
    assert (done.report["ended_by"], done.report["iterations"]) == ("stop", 1)
    assert repo.show(f"ralph/{done.report['id']}-wip:new") == b"new\n"
    assert not [warning for warning in done.warnings if warning["event"] == "snapshot.failed"]


def test_the_end_of_an_agent_does_not_wait_for_the_look_of_a_beat(
    repo: Repo, remote: Repo, tmp_path: Path
) -> None:
    """The look after the iteration follows at once."""
    repo.write(".ralph/config.toml", 'remote_beat = "5s"\n')
    script = f"echo new > new; until [ -e {tmp_path / 'go'} ]; do sleep 0.05; done"
    with Gate(tmp_path / "gate", "update-index") as gate:
        options = ("--remote", "origin", "-n", "1")
        with Session(repo.path, *options, *SH, script, env=gate.env | TRUST) as session:
            gate.wait()
            (tmp_path / "go").touch()
            done = session.finish()
    assert done.status == 0, done.stderr
    assert claim_of(remote, done.report["id"])["state"] == "stopped"


def test_the_beat_does_not_wait_for_the_look(repo: Repo, remote: Repo, tmp_path: Path) -> None:
    """Other machines see that the session lives, although its work cannot be looked at."""
    repo.write(".ralph/config.toml", 'remote_beat = "1s"\n')
    with (
        Gate(tmp_path / "gate", "update-index") as gate,
        Session(repo.path, "--remote", "origin", *SH, WORKS, env=gate.env | TRUST) as session,
    ):
        gate.wait()
        agent_id = session.directory.name.rpartition("-")[2]
        before = claim_of(remote, agent_id)["sequence"]
        eventually(lambda: claim_of(remote, agent_id)["sequence"] > before, "a push of the claim")
        command("stop", "--now", agent_id, cwd=repo.path)
        session.finish()


@pytest.mark.usefixtures("remote")
def test_an_urgent_message_does_not_wait_for_the_look_of_a_beat(repo: Repo, tmp_path: Path) -> None:
    """The agent is asked to end while git still looks, long before the next beat would end the look."""
    repo.write(".ralph/config.toml", 'remote_beat = "12s"\n')
    with (
        Gate(tmp_path / "gate", "update-index") as gate,
        Session(repo.path, "--remote", "origin", *SH, WORKS, env=gate.env | TRUST) as session,
    ):
        gate.wait()
        told = command("tell", session.directory.name, "--now", "Stop.", cwd=repo.path)
        assert told.status == 0, told.stderr
        log = session.directory / "events.jsonl"
        eventually(lambda: b"message.urgent" in log.read_bytes(), "the message to be heard", cap=9)
        command("stop", "--now", session.directory.name, cwd=repo.path)
        session.finish()
