"""What ``ralph-wrap merge`` has moved, so that a look outside does not take it for somebody else's doing.

One line a landing, in ``.ralph/run/landings.jsonl``: the branch, from where, to where. It is a note, and
nothing more: what cannot be read counts as nothing, and then the change is told as any other.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ralph_wrap.system import files

if TYPE_CHECKING:
    from pathlib import Path

IN_PROGRESS = "landing.json"
"""In ``.ralph/run`` while one moves files, and after it was killed at that."""

_FILE = "landings.jsonl"
_KEPT = 500  # of the newest

Landing = tuple[str, str, str]
"""Full name of the branch, object ids before and afterwards."""


def note(run: Path, ref: str, old: str, new: str) -> None:
    """Write down that a branch was moved; one writer at a time.

    Arguments:
        run: ``.ralph/run`` of the project.
        ref: full name of the branch.
        old: object id before.
        new: object id afterwards.

    Raises:
        OSError: it cannot be written.

    """
    rows = [*_rows(run)[-_KEPT + 1 :], json.dumps([ref, old, new]).encode()]
    files.replace(run / _FILE, b"\n".join(rows) + b"\n", sync=False)


def read(run: Path) -> frozenset[Landing]:
    """Return what was moved lately."""
    found = set()
    for row in _rows(run):
        try:
            ref, old, new = json.loads(row)
            found.add((str(ref), str(old), str(new)))
        except (ValueError, TypeError, RecursionError):
            continue
    return frozenset(found)


def is_moving(run: Path) -> bool:
    """Tell whether files are being moved at this moment, or somebody was killed at that."""
    return (run / IN_PROGRESS).exists()


def _rows(run: Path) -> list[bytes]:
    try:
        return files.read(run / _FILE).splitlines()
    except OSError:
        return []
