"""The usage limit of an account: the iteration waits, and is repeated."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.agent_script import PROMISE, TRUSTED, limited, result_line
from tests.support.git_shim import shim_git
from tests.support.processes import status_of
from tests.support.sessions import PROGRAM, Session, assert_ended_by, command, run
from tests.support.terminal import Terminal
from tests.support.wait import CAP, seldom

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo
    from tests.support.sessions import Result

STRICT = ("-n", "1", "--max-failures", "1", "--max-stalls", "1")
"""Each of these would end the loop if a refusal counted."""


def _waiting(result: Result) -> list[float]:
    return [event["until"] for event in result.events if event["event"] == "limit.waiting"]


def _first(tmp_path: Path, first: str) -> str:
    """Return an agent that does something else the first time, and keeps its promise after that."""
    return f"[ -e {tmp_path}/again ] || {{ touch {tmp_path}/again\n{first}exit 1; }}\n{result_line(PROMISE)}"


def _configure(repo: Repo, agent: str, *names: str) -> None:
    table = f"command = [{json.dumps(agent)}]\noutput = 'claude'\n"
    repo.write(".ralph/config.toml", "".join(f"[agents.{name}]\n{table}" for name in names))


# Waiting


def test_the_same_iteration_is_repeated_at_the_stated_time(
    mine: Callable[..., Result], tmp_path: Path
) -> None:
    """And counts as nothing until then: no failure, no stall, no iteration."""
    body = f'echo "$RALPH_ITERATION" >> {tmp_path}/numbers\n' + _first(tmp_path, limited(2))
    result = mine(body, *STRICT)
    assert result.ending == ("promise", 1, 0)
    assert (tmp_path / "numbers").read_text() == "1\n1\n"
    (until,) = _waiting(result)
    began = [event["at"] for event in result.events if event["event"] == "agent.started"]
    assert len(began) == 2
    assert began[1] >= time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(until))


def test_what_a_refused_iteration_has_changed_is_progress_of_its_repetition(
    mine: Callable[..., Result], tmp_path: Path
) -> None:
    """The second try changes nothing more, and yet it is no stall."""
    body = f"[ -e {tmp_path}/again ] || {{ touch {tmp_path}/again; echo > made\n{limited(1)}exit 1; }}\n"
    result = mine(body + result_line("Fine."), "-n", "2", "--max-stalls", "1")
    ended = [(event["refused"], event["changed"]) for event in result.events if "changed" in event]
    assert ended == [(True, None), (False, True), (False, None)]


@pytest.mark.parametrize("seconds", [None, -3600])
def test_without_a_time_to_come_it_waits_half_a_minute(
    mine: Callable[..., Result], seconds: int | None
) -> None:
    """Or as long as the loop may run: then that limit is not what has ended it."""
    before = time.time()
    result = mine(limited(seconds), "--max-time", "2s", *STRICT)
    assert result.ending == ("usage-limit", 1, 1)
    (until,) = _waiting(result)
    assert 29 < until - before < 30 + CAP
    assert result.warnings[-1]["message"] == "max-time reached while the usage limit holds"


def test_a_failure_is_not_repeated(mine: Callable[..., Result], tmp_path: Path) -> None:
    """Negative control: the same session without a limit ends by its first failure."""
    failure = result_line("No.", is_error=True)
    assert mine(_first(tmp_path, failure), *STRICT).ending == ("max-failures", 1, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_waiting(repo: Repo, script: Callable[[str], str], number: signal.Signals) -> None:
    """At once, and no agent is started any more."""
    _configure(repo, script(limited(3600)), "mine")
    with Session(repo.path, "-a", "mine", "-p", "x", env=TRUSTED) as session:
        session.wait_for("limit.waiting")
        session.send(number)
        result = session.finish()
    assert_ended_by(result, number)
    assert result.names.count("agent.started") == 1


def test_a_request_to_stop_ends_the_waiting(repo: Repo, script: Callable[[str], str]) -> None:
    """Even one to stop after the iteration: none runs."""
    _configure(repo, script(limited(3600)), "mine")
    with Session(repo.path, "-a", "mine", "-p", "x", env=TRUSTED) as session:
        session.wait_for("limit.waiting")
        assert command("stop", "--all", "--after-iteration", cwd=repo.path).status == 0
        result = session.finish()
    assert result.ending == ("stop", 1, 0)


def test_a_waiting_session_sleeps(repo: Repo, script: Callable[[str], str]) -> None:
    """Off a terminal, until it is time to look for a request, or the time has come."""
    _configure(repo, script(limited(3600)), "mine")
    with Session(repo.path, "-a", "mine", "-p", "x", env=TRUSTED) as session:
        session.wait_for("limit.waiting")
        seldom(lambda: status_of(session.process.pid, "voluntary_ctxt_switches"), "wake-ups")
        session.send(signal.SIGTERM)
        session.finish()


def test_a_terminal_shows_a_countdown(repo: Repo, script: Callable[[str], str], tmp_path: Path) -> None:
    """A step a second, on one line that is gone afterwards."""
    _configure(repo, script(_first(tmp_path, limited(3))), "mine")
    with Terminal(PROGRAM, "run", "-a", "mine", "-p", "x", cwd=repo.path, env=TRUSTED) as terminal:
        assert terminal.finish() == 0
    *shown, last = terminal.screen.split(b"\r\x1b[Kralph-wrap: the usage limit ends in ")
    assert 1 <= len(shown) <= 9
    assert re.match(rb"\ds\r", last)
    assert b"\r\x1b[K" in last


# Sharing


def _one_that_waits(repo: Repo, script: Callable[[str], str], **env: str) -> Session:
    _configure(repo, script(limited(3600)), "mine")
    session = Session(repo.path, "-a", "mine", "-p", "x", env={**TRUSTED, **env})
    session.wait_for("limit.waiting")
    return session


def test_another_session_does_not_even_start_its_agent(repo: Repo, script: Callable[[str], str]) -> None:
    """It has learned of the limit from the first one, and waits for the same time."""
    with _one_that_waits(repo, script) as first:
        until = first.wait_for("limit.waiting")["until"]
        second = run(repo.path, "-a", "mine", "-p", "x", "--max-time", "1s", env=TRUSTED)
    assert (second.status, second.report["ended_by"], second.report["iterations"]) == (1, "usage-limit", 0)
    assert "agent.started" not in second.names
    assert _waiting(second) == [until]


def test_a_limit_that_is_known_to_people_is_known_to_sessions(
    repo: Repo, script: Callable[[str], str], tmp_path: Path
) -> None:
    """The message of the first one is not before its file, however slow git is after its agent."""
    asked = tmp_path / "asked"
    slow = f"*) if [ -e {asked} ]; then sleep 0.2; fi ;;"
    _configure(repo, script(f"touch {asked}; echo new > new\n{limited(3600)}"), "mine")
    env = {**TRUSTED, "PATH": shim_git(tmp_path / "bin", slow)}
    with Session(repo.path, "-a", "mine", "-p", "x", env=env) as session:
        session.wait_for("agent.limited")
        files = [*(repo.path / ".ralph" / "run").glob("limits/mine-*.json")]
        session.send(signal.SIGTERM)
        session.finish()
    assert len(files) == 1


@pytest.mark.parametrize(("agent", "env"), [("other", {}), ("mine", {"SOME_API_KEY": "mine"})])
def test_another_agent_or_account_is_not_held_back(
    repo: Repo, script: Callable[[str], str], agent: str, env: dict[str, str]
) -> None:
    """Its limit is its own."""
    with _one_that_waits(repo, script):
        _configure(repo, script(result_line(PROMISE)), "mine", "other")
        second = run(repo.path, "-a", agent, "-p", "x", env={**TRUSTED, **env})
    assert second.ending == ("promise", 1, 0)


def test_a_key_is_nowhere(repo: Repo, script: Callable[[str], str]) -> None:
    """Only that there is another one shows."""
    with _one_that_waits(repo, script, SOME_API_KEY="sk-0123456789"):
        (path,) = (repo.path / ".ralph" / "run" / "limits").iterdir()
        assert b"sk-0123456789" not in path.read_bytes() + os.fsencode(path)


def test_spawn_does_not_wait_for_the_limit(repo: Repo, script: Callable[[str], str]) -> None:
    """It prints the id, as of a session whose agent runs."""
    with _one_that_waits(repo, script):
        spawned = command("spawn", "-a", "mine", "-p", "x", cwd=repo.path, env=TRUSTED)
        assert (spawned.status, len(spawned.stdout.strip())) == (0, 4)
        assert "usage limit is reached" in spawned.stderr
        command("stop", "--all", cwd=repo.path)
