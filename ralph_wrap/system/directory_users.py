"""Who and what is in a directory: processes that work in it or write to it, and mounts."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_WRITING = os.O_WRONLY | os.O_RDWR


def occupants(directory: Path) -> list[tuple[int, str]]:
    """Return pid and name of every process that works in a directory or has a file in it open for writing.

    Those of other pid namespaces are not seen, nor, unless we are root, those of other users (``proc(5)``).
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(path.is_relative_to(directory) for path in _places(entry)):
                found.append((int(entry.name), (entry / "comm").read_text(errors="replace").strip()))
    return found


def _places(entry: Path) -> Iterator[Path]:
    yield (entry / "cwd").readlink()
    for number in os.listdir(entry / "fd"):  # noqa: PTH208 -- thousands of names: no objects are made of them
        with contextlib.suppress(OSError, IndexError, ValueError):
            target = (entry / "fd" / number).readlink()
            if target.is_absolute() and _is_written(entry / "fdinfo" / number):
                yield target


def _is_written(info: Path) -> bool:
    # proc(5): "flags: " and an octal number
    flags = next(line for line in info.read_text().splitlines() if line.startswith("flags:"))
    return bool(int(flags.split()[1], 8) & _WRITING)


def mounts_in(directory: Path) -> list[str]:
    """Return the mount points in a directory, itself included (``proc(5)``: mountinfo)."""
    try:
        table = Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return []
    points = (re.sub(rb"\\([0-7]{3})", _octal, line.split(b" ")[4]) for line in table.splitlines())
    return [path for path in map(os.fsdecode, points) if Path(path).is_relative_to(directory)]


def _octal(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 8)])
