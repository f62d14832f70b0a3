"""Agents that the configuration describes: what they are given, and what is made of what they print."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.system import container
from tests.support.agent_script import PROMISE, TRUSTED, print_line, result_line, says
from tests.support.processes import left
from tests.support.sessions import Session, assert_ended_by, command, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo
    from tests.support.sessions import Result

TOOL = print_line(
    {
        "type": "user",
        "message": {"content": [{"type": "tool_result", "content": f"\n{PROMISE}\n"}]},
    }
)
THOUGHT = print_line(
    {"type": "assistant", "message": {"content": [{"type": "thinking", "thinking": PROMISE}]}}
)


# The output of an agent


def test_words_and_tools_are_shown_and_the_stream_is_kept(mine: Callable[..., Result]) -> None:
    """One line for each use of a tool; the stream is in output.log as it came."""
    used = {"id": "n", "content": [{"type": "tool_use", "name": "Bash", "input": {"command": "make\nmake"}}]}
    body = says("Looking.") + print_line({"type": "assistant", "message": used}) + TOOL + result_line("Fine.")
    result = mine(body, "-n", "1")
    assert result.stdout == b"Looking.\n> Bash: make \xe2\x80\xa6\n"
    logged = [json.loads(line)["type"] for line in result.output_log.splitlines()]
    assert logged == ["assistant", "assistant", "user", "result"]


def test_raw_passes_the_stream_on(mine: Callable[..., Result]) -> None:
    """Byte for byte, invalid ones too; the session still understands the stream."""
    result = mine(says("Looking.") + r"printf 'noise\377\n';" + result_line(PROMISE), "--raw")
    assert result.stdout == result.output_log
    assert (b"noise\xff\n" in result.stdout, result.ending) == (True, ("promise", 1, 0))


def test_text_between_the_lines_is_shown(mine: Callable[..., Result]) -> None:
    """Warnings of an interpreter, say; half a line at the end, too."""
    result = mine("echo warning;" + result_line("Fine.") + """printf '{"type":'""", "-n", "1")
    assert result.stdout == b'warning\n{"type":\n'


# What it comes to


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        pytest.param(result_line(f"Done.\n {PROMISE} "), True, id="final answer"),
        pytest.param(says(PROMISE) + result_line("Not yet."), False, id="earlier words"),
        pytest.param(TOOL + result_line("Not yet."), False, id="tool"),
        pytest.param(THOUGHT + result_line("Not yet."), False, id="thought"),
        pytest.param(result_line(f"I will say {PROMISE} later"), False, id="inside a line"),
        pytest.param(result_line(PROMISE, is_error=True), False, id="error"),
        pytest.param(f"echo '{PROMISE}';" + result_line("Not yet."), False, id="text between the lines"),
        pytest.param(f"echo '{PROMISE}'", True, id="plain text after all"),
        pytest.param(says(PROMISE), False, id="no final answer"),
    ],
)
def test_what_keeps_the_promise(mine: Callable[..., Result], body: str, *, kept: bool) -> None:
    """A line of the final answer; of plain text, where an agent prints no line of its format."""
    assert mine(body, "-n", "1").ending[0] == ("promise" if kept else "max-iterations")


def test_what_an_agent_reports_to_have_spent_is_in_the_report(mine: Callable[..., Result]) -> None:
    """Of all iterations together; of one that was cut off, what it had reported until then."""
    body = f'[ "$RALPH_ITERATION" = 3 ] && {{ {says("Hm.")}exit 0; }}\n' + result_line("Fine.")
    result = mine(body, "-n", "3", "--max-stalls", "0")
    assert (result.report["tokens"], result.report["cost_usd"]) == (123 + 123 + 11, 0.5)
    printed = [event for event in result.events if event["event"] == "agent.reported"]
    assert [(event["tokens"], event["cost_usd"], event["turns"]) for event in printed] == [
        *[(123, 0.25, 2), (123, 0.25, 2)],
        (11, None, 1),
    ]


def test_an_agent_that_reports_nothing_has_no_numbers(mine: Callable[..., Result]) -> None:
    """Not zero, which would be one."""
    result = mine("echo words", "-n", "1")
    assert (result.report["tokens"], result.report["cost_usd"]) == (None, None)


def test_an_error_with_status_0_is_a_failure(mine: Callable[..., Result]) -> None:
    """The agent's own word counts."""
    result = mine(result_line("No such model", is_error=True, api_error_status=404), "-n", "1")
    assert result.ending == ("max-iterations", 1, 1)
    (printed,) = result.warnings
    assert (printed["event"], printed["message"]) == ("agent.failed", "the agent failed: No such model")
    assert result.stdout == b"! No such model\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_agent_that_calls_its_interruption_an_error_has_not_failed(
    repo: Repo, script: Callable[[str], str], number: signal.Signals
) -> None:
    """As Claude Code does: whoever presses Ctrl-C reads of no failure."""
    error = result_line("Request interrupted by user", subtype="error_during_execution", is_error=True)
    program = script(
        f"end() {{\n{error}exit 1\n}}\ntrap end INT TERM\n{says('Working.')}while :; do sleep 0.05; done\n"
    )
    repo.write(".ralph/config.toml", f'[agents.mine]\ncommand = ["{program}"]\noutput = "claude"\n')
    with Session(repo.path, "-a", "mine", "-p", "x", env=TRUSTED) as session:
        log = session.directory / "output.log"
        eventually(lambda: log.exists() and b"Working." in log.read_bytes(), "its first words")
        session.send(number)
        result = session.finish()
    assert (result.status, result.report["ended_by"]) == (128 + number, "signal")
    assert result.warnings == []
    assert "fail" not in " ".join(str(event.get("message")) for event in result.narration)
    assert "agent.interrupted" in result.names


def test_a_usage_limit_is_logged_with_its_time(mine: Callable[..., Result]) -> None:
    """What it tells of it; how long that is waited for is another matter."""
    rejected = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1900000000}}
    result = mine(
        print_line(rejected) + result_line("Limit", is_error=True, api_error_status=429), "--max-time", "1s"
    )
    assert result.ending == ("usage-limit", 1, 1)
    printed, *_ = result.warnings
    assert (printed["event"], printed["until"]) == ("agent.limited", 1900000000)
    assert printed["message"] == "the agent's usage limit is reached until 2030-03-17 17:46 UTC: Limit"


def test_a_status_of_its_own_is_kept(mine: Callable[..., Result]) -> None:
    """It says more than ours."""
    assert mine(result_line("No", is_error=True) + "exit 41", "-n", "1").ending == ("max-iterations", 1, 41)


def test_an_iteration_that_a_signal_ends_keeps_no_promise(
    repo: Repo, script: Callable[[str], str], home: Path, tmp_path: Path
) -> None:
    """What it has said until then was not asked for any more."""
    printed = tmp_path / "told"
    agent = script(result_line(PROMISE) + f"touch {printed}; exec sleep 1000")
    repo.write(".ralph/config.toml", f'[agents.mine]\ncommand = ["{agent}"]\noutput = "claude"\n')
    with Session(repo.path, "-a", "mine", "-p", "x", env=TRUSTED) as session:
        eventually(printed.exists, "its answer")
        session.send(signal.SIGTERM)
        result = session.finish()
    assert_ended_by(result, signal.SIGTERM)
    assert PROMISE.encode() in result.output_log
    assert left(home) == {}


# What it is given


def test_a_prompt_as_an_argument(mine: Callable[..., Result]) -> None:
    """Where the command says; its standard input is empty, and nothing goes through a shell."""
    result = mine('printf "[%s]" "$@"; cat', "-n", "1", output="text", words="--say {prompt} x{prompt}")
    assert result.stdout == b"[--say][do it][xdo it]"


def test_a_prompt_as_a_file(mine: Callable[..., Result]) -> None:
    """Anew in each iteration, and outside the worktree."""
    body = 'printf "%s " "$RALPH_ITERATION"; cat "$1"; case $1 in "$RALPH_WORKSPACE"/*) echo inside;; esac'
    result = mine(body, "-n", "2", "--max-stalls", "0", output="text", words="{prompt_file}")
    assert result.stdout == b"1 do it2 do it"


def test_variables_of_an_agent(mine: Callable[..., Result]) -> None:
    """Besides those that every agent gets."""
    result = mine('echo "$MODEL, $RALPH_ITERATION"', "-n", "1", output="text", env={"MODEL": "small"})
    assert result.stdout == b"small, 1\n"


def test_a_table_changes_a_known_agent(repo: Repo, script: Callable[[str], str]) -> None:
    """What it leaves out stays as it is known."""
    agent = script('echo "$@";' + result_line(PROMISE))
    repo.write(".ralph/config.toml", f'[agents.claude]\ncommand = ["{agent}", "--model", "small"]\n')
    result = run(repo.path, "-a", "claude", "-p", "x", env=TRUSTED)
    assert (result.ending, result.report["tokens"]) == (("promise", 1, 0), 123)


def test_a_known_agent_gets_its_words(repo: Repo, tmp_path: Path) -> None:
    """Those of aider, of which no real one is tried: the prompt is in a file."""
    program = tmp_path / "bin" / "aider"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor last; do :; done\necho "$*" | sed "s, /.*,,"; cat "$last"\n')
    program.chmod(0o755)
    env = {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    result = run(repo.path, "-a", "aider", "-p", "do it", "-n", "1", env=env)
    assert result.stdout == b"--yes-always --no-stream --no-pretty --message-file\ndo it"


# Approval


def test_an_agent_of_the_configuration_runs_only_with_approval(
    repo: Repo, script: Callable[[str], str], tmp_path: Path
) -> None:
    """Nothing runs without; with it, the very text runs, and another one does not."""
    ran = tmp_path / "ran"
    table = f'[agents.mine]\ncommand = ["{script(f"touch {ran}")}"]\n'
    repo.write(".ralph/config.toml", table)
    arguments = ("-a", "mine", "-p", "x", "-n", "1")
    refused = run(repo.path, *arguments)
    assert (refused.status, ran.exists()) == (125, False)
    assert "settings that you have not approved: agents.mine" in refused.stderr
    assert command("trust", cwd=repo.path).status == 0
    assert run(repo.path, *arguments).status == 0
    assert ran.exists()
    ran.unlink()
    repo.write(".ralph/config.toml", table + 'env = { PATH = "/elsewhere" }\n')
    assert "settings that you have not approved: agents.mine" in run(repo.path, *arguments).stderr
    assert not ran.exists()


def test_an_agent_that_is_not_run_needs_no_approval(repo: Repo) -> None:
    """Nor does a command that was typed."""
    repo.write(".ralph/config.toml", '[agents.mine]\ncommand = ["no-such-command"]\n')
    assert run(repo.path, "-n", "1", "--", "true").status == 0


def test_the_command_to_be_approved_is_shown(repo: Repo) -> None:
    """With everything that the table says."""
    repo.write(".ralph/config.toml", '[agents.mine]\ncommand = ["x", "{prompt}"]\nenv = { A = "b" }\n')
    shown = command("trust", "--show", "--json", cwd=repo.path)
    assert json.loads(shown.stdout)["data"]["commands"] == {
        "agents.mine": {"command": ["x", "{prompt}"], "env": {"A": "b"}}
    }


def test_an_agent_without_a_command_cannot_be_run(repo: Repo) -> None:
    """A table that only says something else, of an agent that is not known."""
    repo.write(".ralph/config.toml", '[agents.mine]\noutput = "text"\n')
    (printed,) = run(repo.path, "-a", "mine", "-p", "x", env=TRUSTED).narration
    assert printed["message"] == "agent mine has no command"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused by Claude Code")
def test_claude_gets_the_variable_of_a_sandbox_only_in_a_container(repo: Repo, tmp_path: Path) -> None:
    """Where root can do no harm outside of it: that is not for us to say elsewhere."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "sandbox: ${IS_SANDBOX-none}"\n')
    program.chmod(0o755)
    env = {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    result = run(repo.path, "-a", "claude", "-p", "x", "-n", "1", env=env)
    contained = container.mark(Path("/")) is not None
    assert result.stdout == (b"sandbox: 1\n" if contained else b"sandbox: none\n")
