"""How each setting is read from text: the same wherever it stands."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from ralph_wrap.config.settings import Ignore, Isolation, OnDirty, OnLeak, Orphans, Submodules

if TYPE_CHECKING:
    from collections.abc import Callable


_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(value: str) -> float:
    """Read ``90s``, ``15m``, ``2h``; a bare number is seconds, as in ``sleep(1)``.

    Returns:
        Seconds.

    Raises:
        ValueError: it is none of these.

    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|)", value)
    if not found:
        raise ValueError(f"{value!r} is no duration (90s, 15m, 2h, 14d)")
    return float(found[1]) * _UNITS[found[2]]


def _count(value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise ValueError(f"{value!r} is no whole number of 0 or more")
    return int(value)


def _dollars(value: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", value):
        raise ValueError(f"{value!r} is no amount in US dollars (5, 0.50)")
    return float(value)


def _flag(value: str) -> bool:
    meaning = {
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
    }
    if value.lower() not in meaning:
        raise ValueError(f"{value!r} is neither on nor off")
    return meaning[value.lower()]


def _text(value: str) -> str:
    return value


def _branch(value: str) -> str:
    if value in {"True", "False"}:  # as TOML has them
        raise ValueError(f'{value.lower()} is no branch: "main" may be one')
    return value


def _command(value: str) -> str:
    if "\0" in value:
        raise ValueError("a command cannot hold a NUL character")
    return value.strip() and value


def _paths(value: str) -> tuple[str, ...]:
    return tuple(line for line in value.split("\n") if line)


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


_Choice = TypeVar("_Choice", bound=Enum)


def _choice(kind: type[_Choice]) -> Callable[[str], _Choice]:
    def read(value: str) -> _Choice:
        try:
            return kind(value)
        except ValueError:
            choices = ", ".join(member.value for member in kind)
            raise ValueError(f"{value!r} is none of {choices}") from None

    return read


READERS: dict[str, Callable[[str], Any]] = {
    "agent": _text,
    "prompt": _text,
    "prompt_file": Path,
    "max_iterations": _count,
    "max_failures": _count,
    "max_stalls": _count,
    "max_time": duration,
    "max_tokens": _count,
    "max_cost": _dollars,
    "iteration_timeout": duration,
    "idle_timeout": duration,
    "delay": duration,
    "grace": duration,
    "until": _text,
    "preamble": _flag,
    "raw": _flag,
    "on_leak": _choice(OnLeak),
    "isolation": _choice(Isolation),
    "base": _text,
    "branch": _text,
    "sparse": _paths,
    "link": _paths,
    "hooks": _flag,
    "on_dirty": _choice(OnDirty),
    "keep_worktree": _flag,
    "drop_empty": _flag,
    "ignore": _choice(Ignore),
    "job": Path,
}
FILE_ONLY: dict[str, Callable[[str], Any]] = {
    "orphans": _choice(Orphans),
    "copy": _paths,
    "submodules": _choice(Submodules),
    "pool": _count,
    "pool_keep": _places,
    "commit_each": _flag,
    "push": _text,
    "setup": _command,
    "setup_timeout": duration,
    "check": _command,
    "check_timeout": duration,
    "merge_on_complete": _branch,
    "main": _text,
    "keep_dropped": duration,
    "resume": _flag,
}
