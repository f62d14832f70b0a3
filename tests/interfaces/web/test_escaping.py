"""Hostile text, line by line."""

from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import escape

from ralph_wrap.interfaces.web.escaping import plain, shown, visible
from ralph_wrap.interfaces.web.highlight import Highlighter


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain, tab\tand line\n", "plain, tab\tand line\n"),
        ("größe 日本語 🙂", "größe 日本語 🙂"),
        ("a\u202egpj.exe", "a⟨U+202E⟩gpj.exe"),
        ("\u2066x\u2069", "⟨U+2066⟩x⟨U+2069⟩"),
        ("zero\u200bwidth\ufeff", "zero⟨U+200B⟩width⟨U+FEFF⟩"),
        ("\x1b[31m\x00\x7f\x85", "⟨U+001B⟩[31m⟨U+0000⟩⟨U+007F⟩⟨U+0085⟩"),
        (b"\xff\xfe".decode("utf-8", "surrogateescape"), "⟨FF⟩⟨FE⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("line\u2028separator", "line⟨U+2028⟩separator"),
    ],
)
def test_what_cannot_be_seen_is_named(text: str, seen: str) -> None:
    """Letters of any script stay as they are."""
    assert visible(text) == seen


def test_what_stands_for_something_else_looks_different() -> None:
    """So the written name of a character does not look like the character."""
    assert shown("<b>\u202e") == '&lt;b&gt;<span class="odd">⟨U+202E⟩</span>'
    assert shown("⟨U+202E⟩") == "⟨U+202E⟩"


@given(st.text(st.characters(), max_size=60))
def test_no_text_becomes_markup(text: str) -> None:
    """Whatever the letters are, also half of a surrogate pair."""
    html = str(shown(text)).replace('<span class="odd">', "").replace("</span>", "")
    assert html == str(escape(visible(text)))
    html.encode()


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07after", "after"),
        (b"\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"50%\r100%\r\ndone", "50%\n100%\ndone"),
        (b"\x1b(B\x1b=x", "x"),
        (b"\x1b[2J\x1b[Hx", "x"),
    ],
)
def test_output_without_its_terminal(output: bytes, text: str) -> None:
    """Colours, titles, links and movements go; each state of a progress line is a line."""
    assert plain(output) == text


@settings(deadline=None)  # the first call for a name loads its lexer
@given(
    name=st.sampled_from(["a.py", "a.js", "a.c", "a.html", "Makefile", "a.unknown", "a.md", "a.json"]),
    lines=st.lists(st.text(st.characters(exclude_characters="\n"), max_size=30), max_size=6),
)
def test_colours_change_no_letter(name: str, lines: list[str]) -> None:
    """The page shows each line as it is, in any language."""
    painted = Highlighter().paint(name, lines)
    assert [unescape(re.sub("<[^>]*>", "", row)) for row in painted] == [
        visible(line.replace("\r", "␍")) for line in lines
    ]


def test_a_keyword_is_coloured() -> None:
    """The control: something is coloured at all."""
    assert Highlighter().paint("a.py", ["return 1  # why"]) == [
        '<i class="k">return</i> <i class="n">1</i>  <i class="c"># why</i>'
    ]


@pytest.mark.parametrize(
    ("name", "lines"), [("a.clj", ["(def x 1)"]), ("a.py", ["return 1"] * 20_000)], ids=["language", "length"]
)
def test_an_agent_chooses_no_slow_colours(name: str, lines: list[str]) -> None:
    """It names the files. Of 500 lexers a few are used, for so much text that none holds the page up."""
    assert Highlighter().paint(name, lines) == lines


def test_a_line_without_end_is_cut() -> None:
    """Five million letters on one line would stop a browser."""
    [line] = Highlighter().paint("a.js", ["x" * 5_000_000])
    assert len(line) < 2100
    assert line.endswith("… (5000000 characters)")
