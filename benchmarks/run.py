"""Measure what is claimed, side by side with bare git: `run.py [start|many|review|web|session|...]`.

The exit status is 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import end
import iteration
import many
import review
import session
import start
import web
from scenarios import scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from scenarios import Verdict

    Measure = Callable[[Path, int | None, int | None], Iterator[Verdict]]

# Those that remove worktrees come last: see scenarios.py on what follows a removal.
CLAIMS = {
    "start": start.measure,
    "many": many.measure,
    "review": review.measure,
    "web": web.measure,
    "session": session.measure,
    "iteration": iteration.measure,
    "end": end.measure,
}


def main() -> int:
    """Measure, print a line for each claim, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("claims", nargs="*", metavar="|".join(CLAIMS), help="default: all")
    parser.add_argument("--files", type=int, metavar="N", help="measure on a repository of N files")
    parser.add_argument("--repeat", type=int, metavar="N", help="measure N times instead of several")
    parser.add_argument(
        "--scratch",
        type=Path,
        default=Path("/var/tmp"),  # noqa: S108 -- a new directory is made in it, never a fixed name
        metavar="DIR",
        help="where repositories are made; on a real disk, /tmp may be memory [default: /var/tmp]",
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.claims) - set(CLAIMS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, _stop)
    python = f"Python {platform.python_version()} of {sys.base_prefix}"
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, in {arguments.scratch}, {python}", flush=True
    )
    passed = True
    with scratch(arguments.scratch) as directory:
        for claim in arguments.claims or CLAIMS:
            for verdict in CLAIMS[claim](directory, arguments.files, arguments.repeat):
                print(verdict, flush=True)
                passed = passed and verdict.passed
    return 0 if passed else 1


def _stop(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
