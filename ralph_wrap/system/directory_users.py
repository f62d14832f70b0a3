"""The users of a directory: processes that work in it or write to it, and mounts."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from ralph_wrap.system import process_table


def occupants(directory: Path) -> list[tuple[int, str]]:
    """Return pid and name of every process that works in a directory or has a file in it open for writing.

    Those of other pid namespaces are not seen, nor, unless we are root, those of other users (``proc(5)``).
    """
    found = []
    for pid in process_table.pids():
        with contextlib.suppress(OSError):
            if any(process_table.paths_in(pid, directory)):
                found.append((pid, process_table.name(pid)))
    return found


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
