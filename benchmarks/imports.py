"""How long a session imports modules, by ``python -X importtime``; bare git imports none."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from scenarios import Verdict, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = 20
LIMIT = 60
"""Milliseconds; about half of them are Python's own modules."""

_SHOWN = 8
_SESSION = ("-X", "importtime", "-m", "ralph_wrap", "run", "--max-iterations", "1", "--", "true")


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claim: of several runs, each module counts with its shortest time."""
    repository = make_repository(directory / "imports", files or FILES)
    shortest: dict[str, int] = {}
    for _ in range(repeat or 15):
        ended = subprocess.run(
            (sys.executable, *_SESSION),
            cwd=repository.path,
            env=repository.environ,
            capture_output=True,
            text=True,
            check=True,
        )
        repository.settle()
        for line in ended.stderr.splitlines():
            own, _, rest = line.removeprefix("import time:").partition("|")
            if own.strip().isdigit():
                name = rest.rpartition("|")[2].strip()
                shortest[name] = min(shortest.get(name, sys.maxsize), int(own))
    longest = sorted(shortest, key=shortest.__getitem__, reverse=True)[:_SHOWN]
    detail = ", ".join(f"{name} {shortest[name] / 1000:.1f}" for name in longest)
    milliseconds = sum(shortest.values()) / 1000
    yield Verdict(
        f"imports of a session, {len(shortest)} modules", milliseconds, LIMIT, " ms", f"longest: {detail}"
    )
