"""``keep_conversation = true``: an iteration takes up the agent's own session of the one before."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.support.agent_script import TRUSTED, limited, print_line, result_line
from tests.support.sessions import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.repo import Repo
    from tests.support.sessions import Result

pytestmark = pytest.mark.usefixtures("trusted")

OPTIONS = ("-p", "do it", "--max-stalls", "0")
TAKEN_UP = 'echo "[$*]"\n'  # text between the lines, which is shown


def _names(session: str) -> str:
    return print_line({"type": "system", "subtype": "init", "session_id": session})


def _in_iteration(number: int, body: str) -> str:
    return f'if [ "$RALPH_ITERATION" = {number} ]; then\n{body}fi\n'


@pytest.fixture
def agent(repo: Repo, tmp_path: Path) -> Callable[..., Result]:
    """Return a function that runs a shell script as a known agent, with a configuration."""

    def run_it(
        body: str, *options: str, name: str = "claude", content: str = "keep_conversation = true\n"
    ) -> Result:
        program = tmp_path / "bin" / name
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{body}")
        program.chmod(0o755)
        repo.write(".ralph/config.toml", content)
        env = TRUSTED | {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
        return run(repo.path, "-a", name, *OPTIONS, *options, env=env)

    return run_it


def _taken_up(result: Result) -> list[str]:
    """Return the session that each iteration has taken up, by its command line."""
    rows = [line[1:-1].split() for line in result.stdout.decode().splitlines() if line.startswith("[")]
    return [row[row.index("--resume") + 1] if "--resume" in row else "" for row in rows]


def test_the_session_of_the_iteration_before_is_taken_up(agent: Callable[..., Result]) -> None:
    """The one that was named last, whether or not it is another one each time."""
    named = _names("none") + _in_iteration(1, _names("a-1")) + _in_iteration(2, _names("b-2"))
    result = agent(TAKEN_UP + named + result_line("Fine."), "-n", "3")
    assert (_taken_up(result), result.warnings) == (["", "a-1", "b-2"], [])
    resumed = [event["resumed"] for event in result.events if event["event"] == "agent.started"]
    assert resumed == [None, "a-1", "b-2"]


def test_nothing_is_taken_up_unless_it_is_wanted(agent: Callable[..., Result]) -> None:
    """Negative control."""
    result = agent(TAKEN_UP + _names("a-1") + result_line("Fine."), "-n", "2", content="")
    assert (_taken_up(result), result.warnings) == (["", ""], [])


def test_an_agent_that_names_none_is_reported_once(agent: Callable[..., Result]) -> None:
    """It goes on without."""
    result = agent(TAKEN_UP + result_line("Fine."), "-n", "3")
    assert _taken_up(result) == ["", "", ""]
    (printed,) = result.warnings
    assert (printed["message"], printed["hint"]) == (
        "no effect: keep_conversation; the agent does not name its own session",
        "each iteration begins a new one",
    )


@pytest.mark.parametrize("known", [True, False])
def test_an_agent_that_is_not_known_to_do_that(
    repo: Repo, script: Callable[[str], str], *, known: bool
) -> None:
    """Another program, even in the table of an agent that can; one message says so, and it runs as usual."""
    name = "claude" if known else "mine"
    program = script(TAKEN_UP + _names("a-1") + result_line("Fine."))
    table = f'[agents.{name}]\ncommand = ["{program}"]\noutput = "claude"\n'
    repo.write(".ralph/config.toml", f"keep_conversation = true\n{table}")
    result = run(repo.path, "-a", name, *OPTIONS, "-n", "2", env=TRUSTED)
    assert (result.status, _taken_up(result)) == (0, ["", ""])
    assert [printed["message"] for printed in result.warnings] == [
        f"no effect: keep_conversation; {name} has no known option to continue its own session"
    ]


def test_a_session_that_is_gone_is_not_taken_up_again(agent: Callable[..., Result]) -> None:
    """The agent fails with it; the iteration after that begins a new one."""
    gone = result_line("No such session", is_error=True)
    result = agent(
        TAKEN_UP + _in_iteration(2, gone + "exit\n") + _names("a-1") + result_line("Fine."), "-n", "3"
    )
    assert _taken_up(result) == ["", "a-1", ""]
    assert [
        printed["message"] for printed in result.warnings if printed["event"] == "conversation.failed"
    ] == ["the agent failed with its own session a-1: the next iteration begins a new one"]


def test_a_refused_iteration_is_repeated_as_it_was(agent: Callable[..., Result], tmp_path: Path) -> None:
    """In a session of which nothing has come, nothing is to be gone on with."""
    mark = tmp_path / "asked"
    refused = f"if [ ! -e {mark} ]; then touch {mark}; {_names('b-2')}{limited(1)}exit; fi\n"
    result = agent(TAKEN_UP + refused + _names("a-1") + result_line("Fine."), "-n", "2")
    assert _taken_up(result) == ["", "", "a-1"]


@pytest.mark.parametrize(("second", "tokens"), [(150, 150), (100, 100), (40, 140)])
def test_what_a_session_has_cost_before_is_not_counted_again(
    agent: Callable[..., Result], second: int, tokens: int
) -> None:
    """Codex tells what all of the session has used; less than before was counted anew."""

    def used(number: int) -> str:
        return print_line({"type": "turn.completed", "usage": {"input_tokens": number}})

    body = print_line({"type": "thread.started", "thread_id": "t-1"})
    result = agent(
        body + _in_iteration(1, used(100)) + _in_iteration(2, used(second)), "-n", "2", name="codex"
    )
    assert result.report["tokens"] == tokens
