"""The manual page says what the help says."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from typing import TYPE_CHECKING

import pytest
from typer.main import get_command

from ralph_wrap.interfaces.cli.app import app
from tests.docs.documents import DOCS
from tests.support.needs import program
from tests.support.sessions import command

if TYPE_CHECKING:
    from pathlib import Path

PAGE = DOCS / "man" / "ralph-wrap.1"
NAMES = [*get_command(app).commands]  # type: ignore[attr-defined]  # it is a group

_DECORATION = re.compile(
    r"^ *Usage:.*$|^╭.*$|[╰╯│─]|<str>|\[(?:default:|env var:|required|\d+<=)[^\]]*\]", re.MULTILINE
)
"""What only the help has: boxes with their headings, and notes of Typer."""


@cache
def _shown() -> str:
    """Return the page as `man` shows it, in one line."""
    program("man", "man-db").check()
    environ = {**os.environ, "MANWIDTH": "1000", "MANROFFOPT": "-Tutf8", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ("man", "--warnings", "--local-file", PAGE), env=environ, capture_output=True, check=True, text=True
    )
    assert done.stderr == ""
    return _words(re.sub(r".\x08", "", done.stdout))


def _words(text: str) -> str:
    return " ".join(text.replace("\N{HORIZONTAL ELLIPSIS}", "...").split())


def _cells(cwd: Path, *words: str) -> list[str]:
    """Return the texts of a help: its paragraphs, and the cells of its tables."""
    shown = command(*words, "--help", cwd=cwd, env={"COLUMNS": "400", "TERMINAL_WIDTH": "400"})
    text = _DECORATION.sub(" ", shown.stdout.decode())
    cells = [_words(cell) for line in text.splitlines() for cell in re.split(r"\s{2,}", line.strip())]
    return [cell for cell in cells if cell]


@pytest.mark.parametrize("name", [*NAMES, "worktree exit", "config show"])
def test_the_page_has_what_the_help_of_a_command_shows(tmp_path: Path, name: str) -> None:
    """Each text, each option and each value."""
    cells = _cells(tmp_path, *name.split())
    ways = {"--help", "-h", "Show this message and exit."}
    missing = [cell for cell in cells if cell not in _shown() and cell not in ways]
    assert len(cells) > 3
    assert missing == []


def test_the_page_has_what_the_help_of_all_commands_shows(tmp_path: Path) -> None:
    """Each command, with the first sentence about it."""
    for cell in _cells(tmp_path):
        if cell.endswith(".") and cell != "Show this message and exit.":
            assert cell in _shown()
    for name in NAMES:
        assert f"ralph-wrap {name} " in _shown()
