"""Agents that a Python program runs in a worktree."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ralph_wrap import (
    AgentResult,
    run_agent,
)
from ralph_wrap.errors import (
    AgentError,
    AgentNotFoundError,
    RalphError,
    UsageError,
)
from tests.support.repo import Repo
from tests.support.wait import eventually


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("agent", [None, "claude"])
def test_a_known_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str | None) -> None:
    """Its command line gets the prompt on standard input; claude is the default."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@"\ncat\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    words = "-p --output-format stream-json --verbose --dangerously-skip-permissions"
    assert run_agent("do it", agent).output == f"{words}\ndo it"


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"type":"result","subtype":"success","is_error":false,"result":"Done."}', AgentResult(0, "Done.")),
        ('{"type":"result","subtype":"success","is_error":true,"result":"No."}', AgentResult(1, "No.")),
    ],
    ids=["answer", "failure"],
)
def test_the_answer_of_a_known_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, expected: AgentResult
) -> None:
    """What it says at the end, not the format that it says it in; a failure is one whatever its status."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{line}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    assert run_agent("do it", "claude") == expected


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("sh", "-c", "echo out; echo err >&2; exit 7"), AgentResult(7, "out\n")),
        (("sh", "-c", "kill -TERM $$"), AgentResult(143, "")),
        (("printf", r"\377"), AgentResult(0, "\ufffd")),
        (("sh", "-c", 'echo "${GIT_DIR-none}"'), AgentResult(0, "none\n")),
    ],
    ids=["status", "signal", "no text", "environment"],
)
def test_how_an_agent_ends(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], expected: AgentResult
) -> None:
    """Its status as a shell counts it, what it printed, and no variable that leads its git elsewhere."""
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    assert run_agent("", command) == expected


@pytest.mark.usefixtures("project")
def test_much_goes_in_and_out() -> None:
    """More than any pipe holds, without anybody reading in time."""
    prompt = "x" * (1 << 20)
    assert run_agent(prompt, ("sh", "-c", "cat; cat")).output == prompt


@pytest.mark.parametrize(
    ("agent", "error"),
    [
        ("no-such-agent", UsageError),
        ((), UsageError),
        (("no-such-command",), AgentNotFoundError),
        (("./no-such-command",), AgentNotFoundError),
        (("./file.txt",), AgentError),
    ],
)
@pytest.mark.usefixtures("project")
def test_agents_that_cannot_be_run(agent: str | tuple[str, ...], error: type[RalphError]) -> None:
    """Each with the error that says why."""
    with pytest.raises(error):
        run_agent("", agent)


def test_an_interrupted_program_ends_its_agent(project: Repo) -> None:
    """Ctrl-C does not reach the agent's process group by itself."""
    program = (
        "from ralph_wrap import run_agent\n"
        "agent = 'trap \"echo ended > ended; exit\" TERM; echo $$ > pid; sleep 600 & wait'\n"
        "run_agent('', ('sh', '-c', agent))\n"
    )
    pid = project.path / "pid"
    with subprocess.Popen((sys.executable, "-c", program), stderr=subprocess.DEVNULL) as running:
        try:
            eventually(lambda: pid.exists() and pid.read_text(), "the agent to start")
            running.send_signal(signal.SIGINT)
            assert running.wait(30) == -signal.SIGINT
        finally:
            running.kill()
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                os.killpg(int(pid.read_text()), signal.SIGKILL)
    assert (project.path / "ended").exists()
