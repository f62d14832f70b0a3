"""The branches that ``ralph-wrap merge`` moved; sessions do not report these changes as leaks.

``.ralph/run/landings.jsonl`` has one line for each landing: the branch, the commits before and after. The
file is only a hint. If a line cannot be read, sessions say so, and report the change like any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.system import document, files

IN_PROGRESS = "landing.json"
"""File in ``.ralph/run`` that exists while ``merge`` moves files; it stays if ``merge`` is killed."""

_FILE = "landings.jsonl"
_KEPT = 500  # number of the newest lines to keep

Landing = tuple[str, str, str]
"""Full name of the branch, object ids before and afterwards."""


class Landings(NamedTuple):
    """The recent landings.

    Attributes:
        known: those that can be read.
        problem: why there may be others; empty if all can be read.

    """

    known: frozenset[Landing]
    problem: str = ""


def note(run: Path, ref: str, old: str, new: str) -> None:
    """Record that a branch was moved; a lock allows one writer at a time.

    Arguments:
        run: ``.ralph/run`` of the project.
        ref: full name of the branch.
        old: object id before.
        new: object id afterwards.

    Raises:
        OSError: the file cannot be read or written.

    """
    rows = [*filter(_parsed, _rows(run))][-_KEPT + 1 :]
    rows = [*rows, json.dumps([ref, old, new]).encode()]
    files.replace(run / _FILE, b"\n".join(rows) + b"\n", sync=False)


def read(run: Path) -> Landings:
    """Return the recent landings."""
    path = run / _FILE
    try:
        landings = [_parsed(row) for row in _rows(run)]
    except OSError as error:
        return Landings(frozenset(), f"{path} cannot be read: {error.strerror or error}")
    problem = f"a line of {path} cannot be read" if None in landings else ""
    return Landings(frozenset(filter(None, landings)), problem)


def _parsed(row: bytes) -> Landing | None:
    try:
        return document.parse(row, _landing)
    except ValueError:
        return None


def _landing(row: Iterable[object]) -> Landing:
    ref, old, new = row
    return str(ref), str(old), str(new)


def is_moving(run: Path) -> bool:
    """Return whether ``merge`` is moving files now, or was killed while it moved them."""
    return (run / IN_PROGRESS).exists()


def _rows(run: Path) -> list[bytes]:
    try:
        return files.read(run / _FILE).splitlines()
    except FileNotFoundError:  # nothing has landed yet
        return []
