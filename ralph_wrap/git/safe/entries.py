"""The entries of a repository's configuration, with the files that it includes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.git.config_file import parse
from ralph_wrap.system import files

_LARGEST = 1 << 22  # bytes of a configuration file
_DEEPEST = 10  # includes in includes, as in git
_INCLUDE = "include.path"


class ConfigEntry(NamedTuple):
    """One key of a configuration file.

    Attributes:
        key: ``section.variable`` or ``section.subsection.variable``, in lower case but for the subsection.
        value: its value; ``None`` for a key without one, which git takes for *true*.

    """

    key: str
    value: str | None


def read_config(path: Path, depth: int = 0) -> list[ConfigEntry]:
    """Return the entries of a configuration file and of the files that it includes without a condition.

    Raises:
        OSError: a file is there, and cannot be read or is not regular.
        ValueError: git would refuse a file, too.

    """
    try:
        content = files.read(Path(os.path.realpath(path)), _LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for key, value in parse(content):
        if key != _INCLUDE:
            found.append(ConfigEntry(key, value))
        elif value and depth < _DEEPEST:
            found += read_config(path.parent / Path(value).expanduser(), depth + 1)
    return found


def format_config(entries: Iterable[ConfigEntry]) -> bytes:
    """Return a configuration file with some entries."""
    rows = []
    for key, value in entries:
        section, _, rest = key.partition(".")
        subsection, dot, variable = rest.rpartition(".")
        rows.append(f"[{section} {_quoted(subsection, '')}]" if dot else f"[{section}]")
        rows.append(f"\t{variable}" + ("" if value is None else f" = {_quoted(value, _NEWLINE)}"))
    return "".join(f"{row}\n" for row in rows).encode("utf-8", "surrogateescape")


_NEWLINE = r"\n"


def _quoted(text: str, newline: str) -> str:
    escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", newline)
    return f'"{escaped}"'
