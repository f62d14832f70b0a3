"""The command line of PID 1, and command lines of sessions."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.exceptions import TyperException

from ralph_wrap.interfaces.cli.app import app
from ralph_wrap.interfaces.init.processes import runs_session
from tests.support.sessions import command


@pytest.mark.parametrize(
    ("words", "environ", "becomes"),
    [
        ("", {}, "8.0 no"),
        ("--", {}, "8.0 no"),
        ("sh -c true", {}, "8.0 no sh -c true"),
        ("-- sh -c true", {}, "8.0 no sh -c true"),
        ("-- -x", {}, "8.0 no -x"),
        ("--stop-timeout 55s", {}, "55.0 no"),
        ("--stop-timeout=1.5m sh --stop-timeout 3", {}, "90.0 no sh --stop-timeout 3"),
        ("--stop-timeout 3 -- --", {}, "3.0 no --"),
        ("--resume", {}, "8.0 yes"),
        ("--resume --stop-timeout 3 sh", {}, "3.0 yes sh"),
        ("sh --resume", {}, "8.0 no sh --resume"),
        ("", {"RALPH_WRAP_STOP_TIMEOUT": "55s"}, "55.0 no"),
        ("--stop-timeout=3", {"RALPH_WRAP_STOP_TIMEOUT": "55s"}, "3.0 no"),
        ("", {"RALPH_WRAP_INIT_RESUME": "1"}, "8.0 yes"),
        ("", {"RALPH_WRAP_INIT_RESUME": "on"}, "8.0 yes"),
        ("", {"RALPH_WRAP_INIT_RESUME": "0"}, "8.0 no"),
        ("", {"RALPH_WRAP_INIT_RESUME": ""}, "8.0 no"),
    ],
)
def test_command_line(
    words: str, environ: Mapping[str, str], becomes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command begins with the first word that is no option of ours; a typed option is stronger."""
    executed: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _path, argv: executed.append(argv))
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    app(["init", *words.split()], standalone_mode=False)
    [argv] = executed
    assert argv[: argv.index("-m") + 2] == [
        sys.executable,
        "-P",
        "-X",
        "utf8",
        "-m",
        "ralph_wrap.interfaces.init",
    ]
    assert argv[argv.index("-m") + 2 :] == becomes.split()


@pytest.mark.parametrize(
    "words", ["--resume=yes", "--stop-timeout", "--stop-timeout soon", "--stop-timeout -1s", "--stop"]
)
def test_a_mistake_starts_nothing(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No PID 1 that does something else than the user wants."""
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("PID 1 was started"))
    with pytest.raises(TyperException):
        app(["init", *words.split()], standalone_mode=False)


def test_help(project: Path) -> None:
    """It is Typer's, and names the option."""
    result = command("init", "--help", cwd=project)
    assert (result.status, result.stderr) == (0, "")
    assert b"--stop-timeout" in result.stdout


def test_mistake(project: Path) -> None:
    """Status 2, and nothing is run."""
    result = command("init", "--stop-timeout", "soon", "touch", "here", cwd=project)
    assert result.status == 2
    assert "'soon' is no duration" in result.stderr
    assert [*project.iterdir()] == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("/opt/v/bin/python3 /usr/local/bin/ralph-wrap run", True),
        ("python3.12 -P -X dev -m ralph_wrap spawn -- sh", True),
        ("python -Im ralph_wrap run", True),
        ("ralph-wrap run --agent claude", True),
        ("/usr/bin/python3 /usr/local/bin/ralph-wrap batch TASKS.md -j 2", True),
        ("ralph-wrap resume --all", True),
        ("ralph-wrap fleet work", True),
        ("ralph-wrap fleet run fleet.yaml", True),
        ("ralph-wrap fleet ps run", False),
        ("python ralph-wrap ps run", False),
        ("python ralph-wrap init -- ralph-wrap run", False),
        ("python -m ralph_wrap sweep", False),
        ("python ralph_wrap run", False),
        ("python -X -m ralph_wrap run", False),
        ("python script.py ralph-wrap run", False),
        ("vim ralph-wrap run", False),
        ("timeout 1h ralph-wrap run", False),
        ("ralph-wrap runner", False),
        ("ralph-wrap", False),
    ],
)
def test_command_lines_of_sessions(words: str, expected: bool) -> None:
    """Python or the program itself, and the command right behind it."""
    assert runs_session(words.replace(" ", "\0").encode() + b"\0") is expected


def test_a_command_line_cannot_hang_pid_1() -> None:
    """The longest row of options that an agent can choose is recognised at once."""
    begun = time.process_time()
    assert not runs_session(b"python\0" + b"-X\0" * 2000)
    assert time.process_time() - begun < 1
