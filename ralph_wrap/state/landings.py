"""The branches that ``ralph-wrap merge`` moved; sessions do not report these changes as leaks.

``.ralph/run/landings.jsonl`` has one line for each landing: the branch, the commits before and after. The
file is only a hint. If a line cannot be read, sessions report the change like any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ralph_wrap.system import document, files

IN_PROGRESS = "landing.json"
"""File in ``.ralph/run`` that exists while ``merge`` moves files; it stays if ``merge`` is killed."""

_FILE = "landings.jsonl"
_KEPT = 500  # number of the newest lines to keep

Landing = tuple[str, str, str]
"""Full name of the branch, object ids before and afterwards."""


def note(run: Path, ref: str, old: str, new: str) -> None:
    """Record that a branch was moved; a lock allows one writer at a time.

    Arguments:
        run: ``.ralph/run`` of the project.
        ref: full name of the branch.
        old: object id before.
        new: object id afterwards.

    Raises:
        OSError: the file cannot be written.

    """
    rows = [*_rows(run)[-_KEPT + 1 :], json.dumps([ref, old, new]).encode()]
    files.replace(run / _FILE, b"\n".join(rows) + b"\n", sync=False)


def read(run: Path) -> frozenset[Landing]:
    """Return the recent landings."""
    found = set()
    for row in _rows(run):
        try:
            found.add(document.parse(row, _landing))
        except ValueError:
            continue
    return frozenset(found)


def _landing(row: Iterable[object]) -> Landing:
    ref, old, new = row
    return str(ref), str(old), str(new)


def is_moving(run: Path) -> bool:
    """Return whether ``merge`` is moving files now, or was killed while it moved them."""
    return (run / IN_PROGRESS).exists()


def _rows(run: Path) -> list[bytes]:
    try:
        return files.read(run / _FILE).splitlines()
    except OSError:
        return []
