"""Text for people: how wide it is in a terminal, and the first few of a long list."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def cells(text: str) -> int:
    """Return how many columns of a terminal a text takes (UAX #11)."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def cut(text: str, width: int) -> str:
    """Return the beginning of a text that takes at most *width* columns of a terminal."""
    if text.isascii():
        return text[:width]
    for end, letter in enumerate(text):
        width -= _cells_of(letter)
        if width < 0:
            return text[:end]
    return text


def _cells_of(letter: str) -> int:
    return 0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")


def some(items: Sequence[str], most: int, suffix: str = "") -> list[str]:
    """Return the first of many items, and after them how many more there are.

    Arguments:
        items: all of them.
        most: how many are shown.
        suffix: what follows the number.

    """
    return [*items[:most], *and_more(len(items), most, suffix)]


def and_more(count: int, most: int, suffix: str = "") -> list[str]:
    """Return the line after the first of many items, none if all are shown; arguments as for :func:`some`."""
    return [f"and {count - most} more{suffix}"] if count > most else []


def named(items: Sequence[str], most: int) -> str:
    """Return the first of many items in a phrase: ``a, b and 7 more``."""
    return " ".join([", ".join(items[:most]), *and_more(len(items), most)])
