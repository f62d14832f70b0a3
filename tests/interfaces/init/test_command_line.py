"""The command line of PID 1, and command lines of sessions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap import config
from ralph_wrap.interfaces import init
from ralph_wrap.interfaces.init import InitOptions
from ralph_wrap.interfaces.init.processes import runs_session
from tests.support.sessions import command

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", InitOptions(8.0, ())),
        ("--", InitOptions(8.0, ())),
        ("sh -c true", InitOptions(8.0, ("sh", "-c", "true"))),
        ("-- sh -c true", InitOptions(8.0, ("sh", "-c", "true"))),
        ("-- -x", InitOptions(8.0, ("-x",))),
        ("--stop-timeout 55s", InitOptions(55.0, ())),
        ("--stop-timeout=1.5m sh --stop-timeout 3", InitOptions(90.0, ("sh", "--stop-timeout", "3"))),
        ("--stop-timeout 3 -- --", InitOptions(3.0, ("--",))),
        ("--resume", InitOptions(8.0, (), resume=True)),
        ("--resume --stop-timeout 3 sh", InitOptions(3.0, ("sh",), resume=True)),
        ("sh --resume", InitOptions(8.0, ("sh", "--resume"))),
        ("--resume=yes", None),
        ("--stop-timeout", None),
        ("--stop-timeout soon", None),
        ("--stop-timeout -1s", None),
        ("--help", None),
        ("-h sh", None),
        ("--stop", None),
    ],
)
def test_command_line(words: str, expected: InitOptions | None) -> None:
    """The command begins with the first word that is no option of ours; a mistake is left to Typer."""
    assert init.read(words.split(), {}) == expected


def test_time_out_from_the_environment() -> None:
    """As every option; a typed option is stronger."""
    environ = {"RALPH_WRAP_STOP_TIMEOUT": "55s"}
    assert init.read([], environ) == InitOptions(55.0, ())
    assert init.read(["--stop-timeout=3"], environ) == InitOptions(3.0, ())
    assert init.read([], {"RALPH_WRAP_STOP_TIMEOUT": "soon"}) is None


@pytest.mark.parametrize(("word", "resume"), [("1", True), ("on", True), ("0", False), ("", False)])
def test_resume_from_the_environment(word: str, *, resume: bool) -> None:
    """As every switch."""
    options = init.read([], {"RALPH_WRAP_INIT_RESUME": word})
    assert options is not None
    assert options.resume is resume


@pytest.mark.parametrize(
    "text", ["8", "90s", "1.5m", "2h", "1d", "10ms", "", "s", "-1", "1e3", "inf", "٣", "8 "]
)
def test_durations_are_those_of_every_option(text: str) -> None:
    """Written twice, read the same."""

    def read(reader: Callable[[str], float]) -> float | str:
        try:
            return reader(text)
        except ValueError as error:
            return str(error)

    assert read(init.duration) == read(config.duration)


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
