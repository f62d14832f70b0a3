"""What an agent prints does nothing to the terminal of the user but colour it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ralph_wrap.agents.output.colours import ColoursOnly
from tests.support.sessions import PROGRAM, run
from tests.support.terminal import Terminal

if TYPE_CHECKING:
    from tests.support.repo import Repo

CLIPBOARD = "\x1b]52;c;ZXZpbA==\x07"


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m\x1b[0m"),
        ("\x1b[38;5;8mgrey", "\x1b[38;5;8mgrey\x1b[0m"),
        ("\x1b[1;5;8mhidden", r"\x1b[1;5;8mhidden"),
        (CLIPBOARD, r"\x1b]52;c;ZXZpbA==\x07"),
        ("\x1b]0;title\x1b\\", "\\x1b]0;title\\x1b\\"),
        ("\x1b[2A\x1b[2Kover", r"\x1b[2A\x1b[2Kover"),
        ("\x1b[8mhidden", r"\x1b[8mhidden"),
        ("\x1bP\x1b[6n\x08\x0e", r"\x1bP\x1b[6n\x08\x0e"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("\x9b2J\x85", r"\x9b2J\x85"),
        ("one\rtwo\r\nthree\tfour\n", "one\ntwo\r\nthree\tfour\n"),
        ("grün 漢字 ✓", "grün 漢字 ✓"),
    ],
)
def test_only_colours_pass(printed: str, shown: str) -> None:
    """However the output is cut into pieces."""
    content = printed.encode()
    for size in (1, 2, len(content)):
        colours = ColoursOnly()
        pieces = [colours.feed(content[at : at + size]) for at in range(0, len(content), size)]
        assert (b"".join(pieces) + colours.finish()).decode() == shown


def test_bytes_that_are_no_text_are_shown() -> None:
    """A lone C1 byte is a control of some terminals."""
    colours = ColoursOnly()
    assert colours.feed(b"\x9b2J\xff") + colours.finish() == rb"\x9b2J\xff"


@pytest.mark.parametrize(("words", "obeyed"), [((), False), (("--raw",), True)])
def test_logs_protects_the_terminal(repo: Repo, words: tuple[str, ...], obeyed: bool) -> None:
    """``--raw`` prints the bytes, as its help says: there the attack succeeds."""
    ended = run(repo.path, "-n", "1", "--", "printf", CLIPBOARD)
    with Terminal(PROGRAM, "logs", ended.report["id"], *words, cwd=repo.path) as terminal:
        assert terminal.finish() == 0
        assert (CLIPBOARD.encode() in terminal.read()) is obeyed
