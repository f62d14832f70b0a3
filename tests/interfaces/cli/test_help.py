"""What the help shows, and the ways to it."""

from __future__ import annotations

from importlib.metadata import version
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.support.sessions import command

if TYPE_CHECKING:
    from pathlib import Path


def _shown(cwd: Path, *words: str) -> str:
    result = command(*words, cwd=cwd, env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"})
    assert result.status == 0, result.stderr
    return result.stdout.decode()


@pytest.mark.parametrize("word", ["-V", "--version", "version"])
def test_the_version_is_shown(tmp_path: Path, word: str) -> None:
    """By an option, or by a command."""
    assert _shown(tmp_path, word) == f"ralph-wrap {version('ralph-wrap')}\n"


@pytest.mark.parametrize("words", [(), ("merge",), ("worktree", "exit")], ids=" ".join)
def test_the_command_help_is_the_option(tmp_path: Path, words: tuple[str, ...]) -> None:
    """For all commands, for one, and for one below another."""
    assert _shown(tmp_path, "help", *words) == _shown(tmp_path, *words, "--help")


def test_help_for_an_unknown_command_is_a_mistake(tmp_path: Path) -> None:
    """Status 2."""
    result = command("help", "nothing", cwd=tmp_path)
    assert (result.status, "nothing" in result.stderr) == (2, True)


def test_the_options_of_run_are_in_panels(tmp_path: Path) -> None:
    """In the order in which a user needs them."""
    shown = _shown(tmp_path, "run", "--help")
    places = [shown.index(f"─ {panel} ─") for panel in ("Prompt", "Agent", "Limits", "Worktree", "Output")]
    assert places == sorted(places)
    for option, panel in (("--prompt-file", 0), ("--agent", 1), ("--max-cost", 2), ("--sparse", 3)):
        assert places[panel] < shown.index(f"│ {option} ") < places[panel + 1]
    assert shown.index("│ --log-format ") > places[-1]


@pytest.mark.parametrize("name", ["run", "review"])
def test_the_help_has_two_examples(tmp_path: Path, name: str) -> None:
    """Each on a line of its own."""
    lines = [line.strip() for line in _shown(tmp_path, name, "--help").splitlines()]
    assert len([line for line in lines if line.startswith(f"ralph-wrap {name} ")]) == 2


@pytest.mark.parametrize("words", [("ps",), ("trust",), ("worktree", "cleanup")], ids=" ".join)
def test_a_paragraph_fills_its_lines(tmp_path: Path, words: tuple[str, ...]) -> None:
    """The terminal decides where a line ends, not the source."""
    lines = [line.strip() for line in _shown(tmp_path, *words, "--help").partition("╭")[0].splitlines()]
    room = 100 - 2  # a blank on each side
    for line, following in pairwise(lines):
        if line and following:
            assert len(f"{line} {following.split()[0]}") > room
