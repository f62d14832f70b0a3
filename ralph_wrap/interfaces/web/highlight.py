"""Syntax colours: the keywords, strings and comments of a line."""

from __future__ import annotations

import time
from collections.abc import Sequence

from markupsafe import Markup
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.token import Token, _TokenType
from pygments.util import ClassNotFound

from ralph_wrap.interfaces.web.escaping import shown

_LONGEST = 2000  # characters of a line; the page does not show more
_WIDEST = 400  # characters of a line with colours: some lexers are slow on longer ones
_PATIENCE = 0.5  # seconds for all colours of a page
_LARGEST = 100_000  # characters with colours at a time
_LANGUAGES = frozenset(
    (
        *("Bash", "C", "C#", "C++", "CSS", "Diff", "Docker", "Go", "HTML", "INI", "Java", "JavaScript"),
        *("JSON", "JSX", "Kotlin", "Makefile", "Markdown", "PHP", "Python", "Ruby", "Rust", "SCSS", "SQL"),
        *("Swift", "TOML", "TSX", "Transact-SQL", "TypeScript", "XML", "YAML"),
    )
)
"""Names of the lexers of Pygments that are used. An agent names the files, so it could choose among 500, and
a regular expression that takes a text apart in exponential time cannot be interrupted."""

_CLASSES: dict[_TokenType, str] = {
    Token.Comment: "c",
    Token.Keyword: "k",
    Token.Keyword.Type: "t",
    Token.Literal.String: "s",
    Token.Literal.Number: "n",
    Token.Name.Builtin: "t",
    Token.Name.Class: "f",
    Token.Name.Function: "f",
    Token.Name.Decorator: "f",
    Token.Name.Tag: "k",
    Token.Name.Attribute: "t",
    Token.Name.Constant: "n",
    Token.Operator.Word: "k",
    Token.Generic.Heading: "k",
    Token.Generic.Subheading: "k",
}


class Highlighter:
    """Colours the lines of one page for 0.5 s; later lines stay plain."""

    def __init__(self) -> None:
        self._left = _PATIENCE
        self._lexers: dict[str, Lexer | None] = {}

    def paint(self, path: str, lines: Sequence[str]) -> list[Markup]:
        """Return consecutive lines as HTML.

        Arguments:
            path: the path of the file; its name alone decides the language, never its content.
            lines: the lines without their ends.

        """
        cut = [_cut(line) for line in lines]
        lexer = self._lexer(path)
        is_long = any(len(line) > _WIDEST for line in cut) or sum(map(len, cut)) > _LARGEST
        if lexer is None or self._left <= 0 or is_long:
            return [shown(line) for line in cut]
        began = time.monotonic()
        painted = _painted(lexer, cut)
        self._left -= time.monotonic() - began
        return painted

    def _lexer(self, path: str) -> Lexer | None:
        name = path.rpartition("/")[2]
        ending = name[name.rfind(".") :] if "." in name else name
        if ending not in self._lexers:
            self._lexers[ending] = _find(name)
        return self._lexers[ending]


def _find(name: str) -> Lexer | None:
    try:
        found = get_lexer_for_filename(name, stripnl=False, ensurenl=False)
    except (ClassNotFound, ImportError, OSError):
        return None
    return found if found.name in _LANGUAGES else None


def _painted(lexer: Lexer, lines: Sequence[str]) -> list[Markup]:
    rows: list[list[str]] = [[]]
    for kind, value in lexer.get_tokens("\n".join(lines)):
        name = _class_of(kind)
        for number, part in enumerate(value.split("\n")):
            if number:
                rows.append([])
            if part:
                escaped = shown(part)
                rows[-1].append(f'<i class="{name}">{escaped}</i>' if name else escaped)
    if len(rows) != len(lines):  # a lexer has dropped or added a line: the page must show the true text
        return [shown(line) for line in lines]
    return [Markup("".join(row)) for row in rows]  # noqa: S704 -- every part went through shown()


def _class_of(kind: _TokenType | None) -> str:
    while kind is not None:
        if kind in _CLASSES:
            return _CLASSES[kind]
        kind = kind.parent
    return ""


def _cut(line: str) -> str:
    line = line.replace("\r", "␍")  # lexers read \r as the end of a line
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}… ({len(line)} characters)"
