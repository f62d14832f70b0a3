"""The README is short, and what it says is so."""

from __future__ import annotations

import re

from ralph_wrap.interfaces.cli.app import all_loaded
from tests.docs.documents import DOCS, ROOT, rows

README = ROOT / "README.md"
LONGEST = 200
"""Lines."""


def test_the_readme_is_short() -> None:
    """A stranger reads it in one go; the rest is in ``docs/``."""
    assert len(README.read_text().splitlines()) <= LONGEST


def test_the_commands_are_those_of_the_help() -> None:
    """The table has each command once, and no other."""
    table = README.read_text().split("## Commands\n", 1)[1]
    named = [
        word.removeprefix("ralph-wrap ")
        for cell, *_ in rows(table)
        for word in re.findall(r"`([^`]+)`", cell)
    ]
    commands = all_loaded().commands
    assert sorted(named) == sorted(commands)


def test_each_page_is_reached() -> None:
    """The README links every page, but for those that its pages link."""
    linked = {*re.findall(r"\]\((docs/[^)#]+)", README.read_text())}
    pages = {path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md")}
    assert pages - linked - {"docs/index.md", "docs/development/contributing.md"} == set()
