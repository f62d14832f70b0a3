"""Read values from any JSON document; a missing value, or one of another type, reads as empty."""

from __future__ import annotations

from datetime import datetime
from typing import Any

_MOST = 10**15  # a larger number is an error, and may not fit into a float
_YEAR_5000 = 95617584000  # seconds
_NUMBERS = (int, float)  # int | float would be made again at each use
_TELLING = (
    *("command", "cmd", "file_path", "filePath", "notebook_path", "absolute_path", "dir_path", "path"),
    *("pattern", "query", "url", "prompt", "description"),
)


def part(document: Any, *path: str) -> Any:
    """Return the value at a path of keys, ``None`` if there is none."""
    for key in path:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document


def text(document: Any, *path: str) -> str:
    """Return the text at a path."""
    for key in path:  # as in part(), without a call: each line needs this several times
        if not isinstance(document, dict):
            return ""
        document = document.get(key)
    return document if isinstance(document, str) else ""


def number(document: Any, *path: str) -> float | None:
    """Return the number at a path, ``None`` if there is none or it is negative."""
    found = part(document, *path)
    if isinstance(found, bool) or not isinstance(found, _NUMBERS) or not 0 <= found < _MOST:
        return None
    return found


def moment(document: Any, *path: str) -> float | None:
    """Return the time at a path, in seconds since the epoch, if it is before the year 5000."""
    found = number(document, *path)
    return found if found is not None and found < _YEAR_5000 else None


def iso_moment(document: Any, *path: str) -> float | None:
    """Return the time at a path that stands there in ISO 8601, in seconds since the epoch."""
    try:
        return datetime.fromisoformat(text(document, *path)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def count(document: Any, *path: str) -> int:
    """Return the whole number at a path, 0 if there is none."""
    return int(number(document, *path) or 0)


def rows(document: Any, *path: str) -> list[Any]:
    """Return the list at a path."""
    found = part(document, *path)
    return found if isinstance(found, list) else []


def telling(arguments: Any) -> str:
    """Return the most informative argument of a tool call."""
    if not isinstance(arguments, dict):
        return arguments if isinstance(arguments, str) else ""
    for name in _TELLING:
        if isinstance(value := arguments.get(name), str):
            return value
    return next((value for value in arguments.values() if isinstance(value, str)), "")
