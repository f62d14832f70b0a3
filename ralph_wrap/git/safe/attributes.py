"""The attributes in ``info/attributes`` of a repository that count for our git (gitattributes(5)).

Git does not track this file, so no review shows it, and an agent can write it. With it, the agent could
choose how files merge, and hide files from ``diff``. So only those of its attributes count that convert files
between the repository and the checkout. A merge or diff driver counts only if the user has approved it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from ralph_wrap.git.safe.entries import ConfigEntry
from ralph_wrap.system import files

_FILE = "info/attributes"
_LARGEST = 1 << 22  # bytes
_PATTERN = re.compile(rb'"(?:[^"\\]|\\.)*"|[^ \t\r]+')
_CONVERSIONS = frozenset(
    {b"crlf", b"eol", b"filter", b"ident", b"lockable", b"text", b"whitespace", b"working-tree-encoding"}
)
_DRIVERS = {"merge": ("driver",), "diff": ("command", "textconv")}


def counting_attributes(common_dir: Path, approved: Collection[ConfigEntry]) -> bytes:
    """Return the lines of ``info/attributes`` that count; empty without the file.

    Arguments:
        common_dir: of the repository.
        approved: entries of its configuration that the user has approved; they may name drivers.

    """
    try:
        content = files.read(common_dir / _FILE, _LARGEST)
    except OSError:
        return b""
    return keep(content, _drivers(approved))


def keep(content: bytes, drivers: Collection[bytes]) -> bytes:
    """Return the lines of a file of attributes with the attributes that count.

    Arguments:
        drivers: assignments of approved drivers, such as ``merge=mine``.

    """
    rows = []
    for line in content.split(b"\n"):
        row = line.strip(b" \t\r")
        pattern = _PATTERN.match(row)
        if pattern is None or row.startswith(b"#"):
            continue
        words = [word for word in row[pattern.end() :].split() if _is_conversion(word) or word in drivers]
        if words:
            rows.append(b" ".join((pattern[0], *words)) + b"\n")
    return b"".join(rows)


def _is_conversion(word: bytes) -> bool:
    return word.lstrip(b"-!").partition(b"=")[0] in _CONVERSIONS


def _drivers(approved: Collection[ConfigEntry]) -> set[bytes]:
    found = set()
    for key, _ in approved:
        section, _, rest = key.partition(".")
        name, _, variable = rest.rpartition(".")
        if name and variable in _DRIVERS.get(section, ()):
            found.add(f"{section}={name}".encode("utf-8", "surrogateescape"))
    return found
