"""Text that agents have written, as a page may show it: it is hostile until it went through here."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

_HARMLESS = re.compile(r"[\t\n -~]*")
# ECMA-48: CSI, OSC and the like with their ends, and two-letter sequences.
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_FIRST_BYTE, _LAST_BYTE = 0xDC80, 0xDCFF  # how Python keeps a byte that is no UTF-8 (PEP 383)


def visible(text: str) -> str:
    """Return text in which nothing is unseen: controls, marks of direction, bytes that are no UTF-8."""
    if _HARMLESS.fullmatch(text):
        return text
    return "".join(c if c.isprintable() or c in "\t\n" else _name(c) for c in text)


def shown(text: str) -> Markup:
    """Return the same as HTML in which what stands for something else looks different."""
    escaped = str(escape(text))
    if _HARMLESS.fullmatch(escaped):
        return Markup(escaped)  # noqa: S704 -- escaped above
    marked = (
        c if c.isprintable() or c in "\t\n" else f'<span class="odd">{_name(c)}</span>' for c in escaped
    )
    return Markup("".join(marked))  # noqa: S704 -- the same, and names of characters


def finalize(value: Any) -> Any:
    """Make whatever a template prints visible; Jinja escapes it afterwards."""
    if isinstance(value, Markup):
        return value
    return visible(value) if isinstance(value, str) else value


def quoted(name: str) -> str:
    """Return a name of a branch or file as a part of a query, whatever its bytes are."""
    return quote(name, safe="", errors="surrogateescape")


def plain(output: bytes) -> str:
    """Return what a terminal would show of some output, more or less: without colours and movements."""
    text = output.decode("utf-8", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n")
    return _TERMINAL.sub("", text)


def _name(letter: str) -> str:
    """Return the notation of a character that is not to be seen."""
    number = ord(letter)
    if _FIRST_BYTE <= number <= _LAST_BYTE:
        return f"⟨{number - 0xDC00:02X}⟩"
    return f"⟨U+{number:04X}⟩"
