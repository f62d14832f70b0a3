"""Between two iterations, against one `git status` of the same files.

The agent notes when it begins and ends. The time from its end to the next beginning is what is measured: a
look at the worktree and outside of it, a snapshot, and the start of the agent. Before its end it takes the
time of a bare `git status` in the project. So both are measured in the same moments of one session. The first
iteration does not count: the session then begins its own index.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
from typing import TYPE_CHECKING

from scenarios import PROGRAM, STAMP, Verdict, compare, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scenarios import Repository

SIZES = (2_000, 20_000, 100_000)
SMALL = 2_000
LIMITS = {"small": 5.0, "large": 3.0}
"""Highest ratio: in a small tree most of the time is the start of processes."""

WORK = {
    "nothing changed": ":",
    "one file changed": 'echo "$RALPH_ITERATION" >> src/0000/00.txt',
    "50 files changed": 'for file in src/0001/*; do echo "$RALPH_ITERATION" >> "$file"; done',
    "a commit": 'echo "$RALPH_ITERATION" >> src/0000/00.txt; git commit -qam work',
}
"""What the agent does."""

OUTPUT = (
    'if [ "$RALPH_ITERATION" = 1 ]; then mkdir target; for i in $(seq 2000); do seq 500 > target/$i; done; fi'
)
"""Build output that git does not ignore, and that stays."""

LONG = 1000  # iterations
LONGEST_GROWTH = 1.1  # of time, memory and descriptors, from the beginning to the end
_ENDS = 50  # iterations at the beginning and at the end that are compared

_AGENT = """
begun=$({stamp})
{work}
before=$({stamp}); git -C "$RALPH_PROJECT" status --porcelain > /dev/null; after=$({stamp})
memory=$(awk '/^VmRSS:/ {{ print $2 }}' /proc/$PPID/status)
echo "$begun $before $after $memory $(ls /proc/$PPID/fd | wc -l) $({stamp})"
"""


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure each kind of work for each size, and that a long loop gets no slower."""
    for size in [files] if files else SIZES:
        repository = make_repository(directory / f"iteration-{size}", size)
        for output, name in ((":", ""), (OUTPUT, ", 2,000 files of build output")):
            for work, body in WORK.items():
                rows = _iterate(repository, f"{output}\n{body}", 1 + (repeat or 9))
                limit = LIMITS["small" if size <= SMALL else "large"]
                gaps = [after[0] - before[5] for before, after in itertools.pairwise(rows[1:])]
                looks = [row[2] - row[1] for row in rows[1:-1]]
                yield compare(f"between iterations, {size:,} files{name}, {work}", limit, gaps, looks)
    if not files and not repeat:
        yield from _measure_long(make_repository(directory / "iteration-long", SMALL))


def _measure_long(repository: Repository) -> Iterator[Verdict]:
    rows = _iterate(repository, WORK["one file changed"], LONG)
    first, last = rows[1 : _ENDS + 1], rows[-_ENDS:]
    names = {"memory": 3, "descriptors": 4}
    for name, column in names.items():
        before, after = (statistics.median(row[column] for row in part) for part in (first, last))
        yield Verdict(
            f"{name} after {LONG} iterations, against the beginning",
            after / before,
            LONGEST_GROWTH,
            "x",
            f"{before:.0f} and {after:.0f}",
        )
    times = [statistics.median(b[0] - a[5] for a, b in itertools.pairwise(part)) for part in (first, last)]
    yield Verdict(
        f"time between two iterations after {LONG}, against the beginning",
        times[1] / times[0],
        LONGEST_GROWTH,
        "x",
        f"{times[0]:.3f} s and {times[1]:.3f} s",
    )


def _iterate(repository: Repository, work: str, iterations: int) -> list[list[float]]:
    """Run one session, and return what its agent has printed in each iteration."""
    agent = repository.script("agent", _AGENT.format(stamp=STAMP, work=work))
    limits = ("--max-iterations", str(iterations + 1), "--max-stalls", str(iterations + 2))
    done = subprocess.run(
        (PROGRAM, "run", *limits, "--", agent),
        cwd=repository.path,
        env=repository.environ,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0 or b"fell_back" in done.stderr:
        raise RuntimeError(f"status {done.returncode}\n{os.fsdecode(done.stderr)}")
    repository.settle()
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
