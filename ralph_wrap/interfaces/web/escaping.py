"""Makes text from agents safe for a page; such text is hostile until this module has escaped it."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

_HARMLESS = re.compile(r"[\t\n -~]*")
# ECMA-48: CSI, OSC and the like with their ends, and two-letter sequences.
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_FIRST_BYTE, _LAST_BYTE = 0xDC80, 0xDCFF  # surrogates that stand for bytes that are not UTF-8 (PEP 383)


def visible(text: str) -> str:
    """Return text in which control characters, direction marks and bytes that are not UTF-8 are visible."""
    if _HARMLESS.fullmatch(text):
        return text
    return "".join(c if c.isprintable() or c in "\t\n" else _name(c) for c in text)


def shown(text: str) -> Markup:
    """Return visible text as HTML that marks the replaced characters."""
    escaped = str(escape(text))
    if _HARMLESS.fullmatch(escaped):
        return Markup(escaped)  # noqa: S704 -- escaped above
    marked = (
        c if c.isprintable() or c in "\t\n" else f'<span class="odd">{_name(c)}</span>' for c in escaped
    )
    return Markup("".join(marked))  # noqa: S704 -- the same, and names of characters


def finalize(value: Any) -> Any:
    """Make each value that a template prints visible; Jinja escapes it afterwards."""
    if isinstance(value, Markup):
        return value
    return visible(value) if isinstance(value, str) else value


def quoted(name: str) -> str:
    """Return a branch or file name, which may hold any byte, as a part of a query."""
    return quote(name, safe="", errors="surrogateescape")


def plain(output: bytes) -> str:
    """Return output roughly as a terminal shows it, without colours and cursor movements."""
    text = output.decode("utf-8", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n")
    return _TERMINAL.sub("", text)


def _name(letter: str) -> str:
    """Return the notation of an invisible character."""
    number = ord(letter)
    if _FIRST_BYTE <= number <= _LAST_BYTE:
        return f"⟨{number - 0xDC00:02X}⟩"
    return f"⟨U+{number:04X}⟩"
