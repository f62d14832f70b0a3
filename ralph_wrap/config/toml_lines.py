"""The line of each key in a TOML document; ``tomllib`` does not return it.

The document is valid, so a few kinds of tokens are enough to find its keys (https://toml.io/en/v1.0.0). The
scanner skips strings, comments and values.
"""

from __future__ import annotations

import re
import tomllib
from typing import NamedTuple

_TOKENS = re.compile(
    r"""
    (?P<space>[ \t\r]+|\#[^\n]*)
    |(?P<newline>\n)
    |(?P<text>\"{3}(?:\\.|[^\\])*?\"{3,5}(?!\")|'{3}.*?'{3,5}(?!')|"(?:\\.|[^"\\\n])*"|'[^'\n]*')
    |(?P<sign>[][{}=,.])
    |(?P<bare>[^][{}=,.\s\#"']+)
    """,
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def of_keys(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each key and table by its full name; a repeated name has its first line.

    Arguments:
        text: a valid document.

    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.lines: dict[tuple[str, ...], int] = {}
        self._rest = _tokens(text)
        self._rest.append(_Token("end", "", 0))
        self._rest.reverse()

    def document(self) -> None:
        table: tuple[str, ...] = ()
        while (token := self._rest[-1]).kind != "end":
            if token.kind == "newline":
                self._rest.pop()
            elif token.text == "[" and token.kind == "sign":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> tuple[str, ...]:
        while self._is_sign("["):
            self._rest.pop()
        table = self._key(())
        while self._is_sign("]"):
            self._rest.pop()
        return table

    def _pair(self, table: tuple[str, ...]) -> None:
        key = self._key(table)
        self._rest.pop()  # the equals sign
        self._value(key)

    def _key(self, table: tuple[str, ...]) -> tuple[str, ...]:
        """Read a key, dotted or not, and note the line of the key and of each table in it."""
        while True:
            token = self._rest.pop()
            table = (*table, _name(token))
            self.lines.setdefault(table, token.line)
            if not self._is_sign("."):
                return table
            self._rest.pop()

    def _value(self, key: tuple[str, ...]) -> None:
        """Skip a value, and note the keys of inline tables in it.

        This is a loop: recursion would fail in a valid document that is nested deeply.
        """
        around: list[
            tuple[str, tuple[str, ...]]
        ] = []  # the closing bracket of each open one, and the key of the value
        while True:
            if self._is_sign("[") or self._is_sign("{"):
                around.append(({"[": "]", "{": "}"}[self._rest.pop().text], key))
            elif around and self._is_sign(around[-1][0]):
                self._rest.pop()
                around.pop()
            elif around and (self._is_sign(",") or self._rest[-1].kind == "newline"):
                self._rest.pop()
            elif around and around[-1][0] == "}" and key == around[-1][1]:
                key = self._key(around[-1][1])
                self._rest.pop()  # the equals sign
                continue
            else:
                self._scalar()
            if not around:
                return
            key = around[-1][1]

    def _scalar(self) -> None:
        while not self._ends_value():
            self._rest.pop()

    def _is_sign(self, sign: str) -> bool:
        return self._rest[-1][:2] == ("sign", sign)

    def _ends_value(self) -> bool:
        return self._rest[-1].kind in {"newline", "end"} or any(map(self._is_sign, ",]}"))


def _tokens(text: str) -> list[_Token]:
    found, line = [], 1
    for match in _TOKENS.finditer(text):
        if (kind := match.lastgroup or "") != "space":
            found.append(_Token(kind, match[0], line))
        line += match[0].count("\n")
    return found


def _name(token: _Token) -> str:
    """Return the name of a key, without its quotes."""
    if token.kind != "text":
        return token.text
    return str(tomllib.loads(f"name = {token.text}")["name"])
