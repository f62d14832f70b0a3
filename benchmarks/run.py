"""Measure what is claimed, side by side with bare git: `run.py [imports|start|many|pool|…]`.

The exit status is 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import functools
import os
import platform
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import end
import fetch
import idle
import imports
import leaks
import many
import output
import pool
import review
import sandbox
import session
import start
import stop
import web
from scenarios import busy_loops, scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from scenarios import Verdict

    Measure = Callable[[Path, int | None, int | None], Iterator[Verdict]]

# Those that remove worktrees come last: see scenarios.py on what follows a removal.
CLAIMS = {
    "imports": imports.measure,
    "start": start.measure,
    "many": many.measure,
    "pool": pool.measure,
    "sandbox": sandbox.measure,
    "leaks": leaks.measure,
    "review": review.measure,
    "fetch": fetch.measure,
    "web": web.measure,
    "idle": idle.measure,
    "output": output.measure,
    "stop": stop.measure,
    "session": session.measure,
    "end": end.measure,
}


def main() -> int:
    """Measure, print a line for each claim, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "claims",
        nargs="*",
        metavar="imports|start|many|pool|sandbox|leaks|review|fetch|web|idle|output|stop|session|end",
        help="default: all",
    )
    parser.add_argument("--files", type=int, metavar="N", help="measure on a repository of N files")
    parser.add_argument("--repeat", type=int, metavar="N", help="measure N times instead of several")
    parser.add_argument("--busy", action="store_true", help="let a busy loop for each core run beside")
    parser.add_argument("--table", action="store_true", help="measure idle and busy, and print Markdown")
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
    if not arguments.table:
        passed = [verdict.passed for verdict in _verdicts(arguments, busy=arguments.busy)]
        return 0 if all(passed) else 1
    sides = [[*_verdicts(arguments, busy=busy)] for busy in (False, True)]
    print("\n| measured | idle | with busy loops | limit |\n| --- | --- | --- | --- |")
    for idle_one, busy_one in zip(*sides, strict=True):
        cells = (f"{one.value:.2f}{one.unit} ({one.detail})" for one in (idle_one, busy_one))
        limits = dict.fromkeys(f"{one.limit}{one.unit}" for one in (idle_one, busy_one))
        print(f"| {' | '.join((idle_one.claim, *cells, ', busy '.join(limits)))} |")
    return 0


def _verdicts(arguments: argparse.Namespace, *, busy: bool) -> Iterator[Verdict]:
    """Measure, and print each verdict as soon as it is known."""
    more = ", a busy loop for each beside" if busy else ""
    python = f"Python {platform.python_version()} of {sys.base_prefix}"
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores{more}, load {load:.1f}, in {arguments.scratch}, {python}", flush=True)
    claims: dict[str, Measure] = {**CLAIMS, "start": functools.partial(start.measure, busy=busy)}
    with scratch(arguments.scratch) as directory, busy_loops(os.cpu_count() or 1 if busy else 0):
        for claim in arguments.claims or claims:
            for verdict in claims[claim](directory, arguments.files, arguments.repeat):
                print(verdict, flush=True)
                yield verdict


def _stop(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
