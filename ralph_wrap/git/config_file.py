"""Read a configuration file of git without a process, as git reads it (git-config(1): Syntax).

It follows no include. A text that git refuses is refused here too.
"""

from __future__ import annotations

import re

_BLANK = re.compile(r"(?:[ \t\n\r]+|[#;][^\n]*)*+")
_SECTION = re.compile(r'\[([A-Za-z0-9.-]*)(?:(?<!\[)\]|[ \t\r]+"((?:[^"\\\n]|\\[^\n])*+)"\])')
_NAME = re.compile(r"([A-Za-z][A-Za-z0-9-]*+)[ \t]*+(=|\n|\Z)")
_UNQUOTED = re.compile(r'[ \t\r]+|\\(?:\n|\Z)|\\[tbn\\"]|"|[#;][^\n]*|[^ \t\r\n\\"#;]+')
_QUOTED = re.compile(r'\\(?:\n|\Z)|\\[tbn\\"]|"|[^\n\\"]+')
_ESCAPES = {"\\t": "\t", "\\b": "\b", "\\n": "\n", "\\\\": "\\", '\\"': '"', "\\\n": "", "\\": ""}


def parse(content: bytes) -> list[tuple[str, str | None]]:
    """Return the keys and values of a configuration file, in its order.

    Section and name are in lower case, the part between them is as it stands. A key without ``=`` has the
    value ``None``.

    Raises:
        ValueError: git cannot read it, or it holds a NUL, at which git cuts it.

    """
    text = content.decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n")
    if "\0" in text:
        raise ValueError("it holds a NUL")
    entries: list[tuple[str, str | None]] = []
    prefix, position = "", 0
    while (position := _end(_BLANK, text, position)) < len(text):
        if head := _SECTION.match(text, position):
            inner = "" if head[2] is None else re.sub(r"\\(.)", r"\1", head[2]) + "."
            prefix, position = f"{head[1].lower()}.{inner}", head.end()
            continue
        name = _NAME.match(text, position)
        if name is None:
            raise ValueError(f"line {text.count(chr(10), 0, position) + 1} is no line of a configuration")
        value, position = _value(text, name.end()) if name[2] == "=" else (None, name.end())
        entries.append((prefix + name[1].lower(), value))
    return entries


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return found.end() if found else position


def _value(text: str, position: int) -> tuple[str, int]:
    """Return a value, and the position behind it.

    Raises:
        ValueError: a quote does not end, or an escape is unknown.

    """
    parts: list[str] = []
    blanks, quoted = "", False
    while part := (_QUOTED if quoted else _UNQUOTED).match(text, position):
        position, word = part.end(), part[0]
        if word == '"':
            quoted = not quoted
        elif not quoted and word[0] in "#;":
            break
        elif not quoted and word[0] in " \t\r":
            blanks += " " * len(word) if parts else ""
        elif found := _ESCAPES.get(word, word):
            parts += [blanks, found]
            blanks = ""
    if quoted or text[position : position + 1] not in {"", "\n"}:
        raise ValueError("a value does not end")
    return "".join(parts), position
