"""The kinds of values that options have; each has one reader of text, for every source."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

_Choice = TypeVar("_Choice", bound=Enum)

SMALLEST_LOG = 4 * 10**6
"""The smallest limit of an output log, in bytes: its beginning, which stays, is a megabyte."""

SLOWEST_BEAT = 600.0
"""Seconds between two pushes of a session at most: also one whose pushes fail tries again after that time."""

_SIZES = {"GiB": 1 << 30, "GB": 10**9, "MiB": 1 << 20, "MB": 10**6, "KiB": 1 << 10, "kB": 1000, "KB": 1000}
_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(value: str) -> float:
    """Read ``90s``, ``15m``, ``2h``; a bare number is seconds, as in ``sleep(1)``.

    Returns:
        Seconds.

    Raises:
        ValueError: the text has another form.

    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|)", value)
    if not found:
        raise ValueError(f"{value!r} is no duration (90s, 15m, 2h, 14d)")
    return float(found[1]) * _UNITS[found[2]]


def _log_size(value: str) -> int:
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(B|kB|KB|MB|GB|KiB|MiB|GiB|)", value)
    if not found:
        raise ValueError(f"{value!r} is no size (200MB, 1GiB)")
    size = int(float(found[1]) * _SIZES.get(found[2], 1))
    if 0 < size < SMALLEST_LOG:
        raise ValueError(f"{value!r} is less than {_size_text(SMALLEST_LOG)}; 0 is no limit")
    return size


def _size_text(size: int) -> str:
    unit = next((unit for unit in (*_SIZES, "B") if size and size % _SIZES.get(unit, 1) == 0), "")
    return f"{size // _SIZES.get(unit, 1)}{unit}"


def _beat(value: str) -> float:
    seconds = duration(value)
    if not 0 < seconds <= SLOWEST_BEAT:
        raise ValueError(f"{value!r} is not above 0s and at most {SLOWEST_BEAT / 60:.0f}m")
    return seconds


def _count(value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise ValueError(f"{value!r} is no whole number of 0 or more")
    return int(value)


def _dollars(value: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", value):
        raise ValueError(f"{value!r} is no amount in US dollars (5, 0.50)")
    return float(value)


FLAG_WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
"""The words for on and off."""


def _flag(value: str) -> bool:
    if value.lower() not in FLAG_WORDS:
        raise ValueError(f"{value!r} is neither on nor off")
    return FLAG_WORDS[value.lower()]


def _text(value: str) -> str:
    return value


def _branch(value: str) -> str:
    if value in {"True", "False"}:  # the booleans of TOML, as text
        raise ValueError(f'{value.lower()} is no branch; a branch is a text, such as "main"')
    return value


def _command(value: str) -> str:
    if "\0" in value:
        raise ValueError("a command cannot hold a NUL character")
    return value.strip() and value


def all_of(commands: Sequence[str]) -> str:
    """Return one command for ``sh`` that runs commands in their order until one of them fails."""
    if len(commands) <= 1:
        return "".join(commands)
    # A newline ends a comment, or a here-document, at the end of a command.
    return " && ".join(f"({each}\n)" if "#" in each or "\n" in each else f"({each})" for each in commands)


def _paths(value: str) -> tuple[str, ...]:
    return tuple(line for line in value.split("\n") if line)


def _events(value: str) -> tuple[str, ...]:
    found = _paths(value)
    for event in found:
        if event not in NOTIFIED:
            raise ValueError(f"{event!r} is none of {', '.join(NOTIFIED)}")
    return found


def _words(value: str) -> tuple[str, ...]:
    if "\0" in value:
        raise ValueError("an argument cannot hold a NUL character")
    return _paths(value)


def _places(value: str) -> tuple[str, ...]:
    found = tuple(path.rstrip("/") for path in _paths(value))
    for path in found:
        parts = PurePosixPath(path).parts
        if (
            not parts
            or parts[0] in {"/", ".git", ".ralph"}
            or ".." in parts
            or path != str(PurePosixPath(path))
        ):
            raise ValueError(f"{path!r} does not name a directory in a worktree")
    return found


_HOST = r"(?:\*\.)?[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*(?::[0-9]{1,5})?"
"""A regular expression: a host, a domain with all its hosts, or a port of them."""


def _network(value: str) -> tuple[str, ...]:
    found = _paths(value)
    if not found:
        raise ValueError("the list is empty; for no network at all, write none")
    for host in found:
        if not re.fullmatch(_HOST, host):
            raise ValueError(f"{host!r} is no host (example.com, *.example.com, example.com:8443)")
    if len(found) > 1 and (alone := {"all", "none"}.intersection(found)):
        raise ValueError(f"{min(alone)} stands alone, not in a list of hosts")
    return found


class ValueKind:
    """The possible values of an option.

    Attributes:
        name: the name in the schema.
        read: makes a value from text; it raises :class:`ValueError` for a wrong text.
        metavar: stands for a value in the help.
        choices: the possible words; empty if other texts are possible.
        several: the value is a list; its text has one entry per line.

    """

    __slots__ = ("choices", "metavar", "name", "read", "several")

    def __init__(
        self,
        name: str,
        read: Callable[[str], Any],
        metavar: str,
        *,
        choices: tuple[str, ...] = (),
        several: bool = False,
    ) -> None:
        self.name, self.read, self.metavar = name, read, metavar
        self.choices, self.several = choices, several


def choice(kind: type[_Choice]) -> ValueKind:
    """Return the kind of an option that takes one of several words."""
    choices = tuple(member.value for member in kind)

    def read(value: str) -> _Choice:
        try:
            return kind(value)
        except ValueError:
            raise ValueError(f"{value!r} is none of {', '.join(choices)}") from None

    return ValueKind("choice", read, "|".join(choices), choices=choices)


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the known name nearest to a misspelt one; ``None`` if no name is near."""
    return next(iter(difflib.get_close_matches(name, known, 1)), None)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return the end of a message that proposes the nearest known name; empty if no name is near."""
    near = nearest(name, known)
    return f'; did you mean "{near}"?' if near else ""


def written(value: Any, kind: ValueKind) -> str | None:
    """Return the text from which the reader makes a value; ``None`` if no text gives it.

    A list has one entry per line, as in the environment.
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return "\n".join(value)
    if kind in DURATIONS or kind is LOG_SIZE:
        return _size_text(value) if kind is LOG_SIZE else _span(value)
    return _number(value) if isinstance(value, float) else str(value)


def _span(seconds: float) -> str:
    units = ("d", "h", "m") if seconds else ()
    unit = next((unit for unit in units if seconds % _UNITS[unit] == 0), "s")
    return _number(seconds / _UNITS[unit]) + unit


def _number(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")  # without an exponent, which the reader refuses


TEXT = ValueKind("text", _text, "TEXT")
FILE = ValueKind("file", Path, "FILE")
COUNT = ValueKind("count", _count, "N")
DURATION = ValueKind("duration", duration, "DURATION")
BEAT = ValueKind("beat", _beat, "DURATION")
DURATIONS = (DURATION, BEAT)
LOG_SIZE = ValueKind("size", _log_size, "SIZE")
DOLLARS = ValueKind("dollars", _dollars, "USD")
FLAG = ValueKind("flag", _flag, "off|on", choices=("off", "on"))
PATHS = ValueKind("paths", _paths, "PATH", several=True)
PLACES = ValueKind("places", _places, "DIR", several=True)
COMMAND = ValueKind("command", _command, "COMMAND")
COMMANDS = ValueKind("commands", _command, "COMMAND")
"""One command, or in the file a list of commands, each of which has to succeed; see :func:`all_of`."""
BRANCH = ValueKind("branch", _branch, "BRANCH")
NOTIFIED = (
    *("done", "blocked", "stuck", "failed", "limit", "leak", "interrupted", "recovered"),
    *("usage-limit", "disk-full"),
)
"""The events of which a person can be told."""

EVENTS = ValueKind("events", _events, "EVENT", several=True)
WORDS = ValueKind("words", _words, "WORD", several=True)
NETWORK = ValueKind("network", _network, "HOST", several=True)
AGENTS = ValueKind("agents", _text, "TABLE")
"""Tables, which only the file can have; ``agent_tables`` reads them."""
