"""The format of the messages on stderr: text, unless the user chooses JSON."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.system.log import FORMAT_VARIABLE
from tests.support.sessions import PROGRAM, Session, command, run
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from tests.support.repo import Repo
    from tests.support.sessions import Result

pytestmark = pytest.mark.usefixtures("ended", "trusted")

AGENT = ("-n", "1", "--", "true")
NO_AGENT = ("--", "./not-there")


@pytest.fixture(autouse=True)
def _no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FORMAT_VARIABLE)


def _choose(repo: Repo, way: str, value: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return options and variables that choose a format, or write it to the configuration."""
    if way == "key":
        repo.write(".ralph/config.toml", f'log_format = "{value}"\n')
    return (
        ("--log-format", value) if way == "option" else (),
        {FORMAT_VARIABLE: value} if way == "variable" else {},
    )


def _objects(result: Result) -> list[str]:
    return [json.loads(line)["event"] for line in result.stderr.splitlines()]


def test_a_pipe_gets_text(repo: Repo) -> None:
    """The start and the end are the same lines as on a terminal."""
    lines = run(repo.path, *AGENT).stderr.splitlines()
    assert "ralph-wrap: session started" in lines
    assert "ralph-wrap: session ended: limit reached after 1 iteration (exit status 0)" in lines
    assert not [line for line in lines if line.startswith("{")]


@pytest.mark.parametrize("way", ["option", "variable", "key"])
def test_the_user_can_choose_json(repo: Repo, way: str) -> None:
    """Each line is an object then."""
    options, variables = _choose(repo, way, "json")
    names = _objects(run(repo.path, *options, *AGENT, env=variables))
    assert (names[-2], names[-1]) == ("session.started", "session.released")


@pytest.mark.parametrize("way", ["option", "variable", "key"])
@pytest.mark.parametrize("verb", ["run", "spawn"])
def test_an_error_has_the_chosen_format(repo: Repo, verb: str, way: str) -> None:
    """Also if the session has never started."""
    options, variables = _choose(repo, way, "json")
    result = command(verb, *options, *NO_AGENT, cwd=repo.path, env=variables)
    assert (result.status, _objects(result)[-1]) == (127, "error.raised")


def test_a_background_session_prints_text(repo: Repo) -> None:
    """Its own log is JSON, which the command that has started it reads."""
    assert command("spawn", *AGENT, cwd=repo.path).stderr.splitlines()[-1].startswith("ralph-wrap: session ")


@pytest.mark.parametrize("way", ["option", "variable", "key"])
def test_a_background_session_prints_json_if_chosen(repo: Repo, way: str) -> None:
    """As a session in the foreground does."""
    options, variables = _choose(repo, way, "json")
    assert _objects(command("spawn", *options, *AGENT, cwd=repo.path, env=variables))[-1] == "session.started"


def test_an_option_beats_the_variable(repo: Repo) -> None:
    """For messages before the configuration is read, too."""
    result = command(
        "run",
        "--log-format",
        "text",
        "--max-time",
        "soon",
        *AGENT,
        cwd=repo.path,
        env={FORMAT_VARIABLE: "json"},
    )
    assert result.stderr.startswith("ralph-wrap: error: --max-time")


def test_dead_sessions_are_finished_in_the_chosen_format(repo: Repo) -> None:
    """A start prints what it does for them."""
    with Session(repo.path, "--", "sleep", "1000") as session:
        session.wait_for("agent.started")
        session.send(signal.SIGKILL)
        session.finish()
    names = _objects(run(repo.path, "--log-format", "json", *AGENT))
    assert "session.swept" in names


def test_other_commands_print_text(repo: Repo) -> None:
    """The envelope is for --json alone."""
    result = command("merge", "abcd", cwd=repo.path)
    assert result.stderr.startswith("ralph-wrap: error: ")


def test_other_commands_follow_the_variable(repo: Repo) -> None:
    """They have no such option."""
    result = command("merge", "abcd", cwd=repo.path, env={FORMAT_VARIABLE: "json"})
    assert _objects(result) == ["error.raised"]


def test_a_terminal_gets_json_if_chosen(repo: Repo) -> None:
    """No line is drawn between the objects."""
    with Terminal(PROGRAM, "run", "--log-format", "json", *AGENT, cwd=repo.path) as terminal:
        assert terminal.finish() == 0
    assert [json.loads(line)["event"] for line in terminal.words.splitlines()][-1] == "session.released"
