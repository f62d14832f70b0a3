"""A review of 1,000 branches, against the fewest bare git processes that give the same facts.

Those are one `for-each-ref`, one walk through the history, one `diff-tree` for files and lines, and one
`merge-tree` over the pairs that ours asks about. What bare git is spared: whether a branch was squashed or
rebased, the records of sessions, the arithmetic on what it has printed, and, from the warm-up on, writing
what merges make, since it finds that in the repository, where it has left it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from scenarios import PROGRAM, Repository, Verdict, compare, in_turns, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FILES = 20_000
COMMITS = 5_000
BRANCHES = 1_000
LIMIT = 2.0
MEMORY = 150.0  # MiB
_RECENT = 1_000  # commits of the main branch that branches start from
_FILES_A_COMMIT = 3


_LARGEST = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""A small process between: a child counts the memory of its parent until its ``exec``."""


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure time and memory."""
    size = files or FILES
    repository = make_reviewed(directory / "review", size)
    asked = _asked(repository)
    largest: list[float] = []

    def ours() -> float:
        begun = time.perf_counter()
        ended = subprocess.run(
            (sys.executable, "-I", "-c", _LARGEST, PROGRAM, "review", "--json"),
            cwd=repository.path,
            env=repository.environ,
            stdout=subprocess.PIPE,
            check=True,
        )
        largest.append(int(ended.stdout) / 1024)
        return time.perf_counter() - begun

    def theirs() -> float:
        begun = time.perf_counter()
        for command, stdin in asked:
            subprocess.run(
                ("git", *command),
                cwd=repository.path,
                env=repository.environ,
                input=stdin,
                stdout=subprocess.PIPE,
                check=True,
            )
        return time.perf_counter() - begun

    mine, others = in_turns(repeat or 5, ours, theirs)
    claim = f"review of {BRANCHES:,} branches, {size:,} files, {COMMITS:,} commits"
    yield compare(claim, LIMIT, mine, others)
    memory = statistics.median(largest)
    yield Verdict(f"memory of a {claim}", memory, MEMORY, " MiB", f"{len(largest)} runs, the largest process")


def make_reviewed(directory: Path, files: int) -> Repository:
    """Make the repository whose branches are looked at."""
    repository = make_repository(directory, files)
    repository.git(
        *("-c", "fastimport.unpackLimit=0", "fast-import", "--quiet"), stdin=b"".join(_work(files))
    )
    repository.git("reset", "--quiet", "--hard")
    return repository


_KEEPING = """
case " $* " in
*" merge-tree "*) kept=merges ;;
*" diff-tree "*" --numstat "*) kept=changes ;;
*) exec '{git}' "$@" ;;
esac
tee "$(mktemp '{directory}'/$kept.XXXXXX)" | '{git}' "$@"
"""
"""A git that keeps what two of its commands read."""


def _asked(repository: Repository) -> list[tuple[Sequence[str], bytes]]:
    """Return the bare git commands, and what they read: what ours asks for in a review."""
    directory = repository.path.parent / "asked"
    directory.mkdir()
    git = shutil.which("git", path=repository.environ["PATH"])
    repository.script("asked/git", _KEEPING.format(git=git, directory=directory))
    path = f"{directory}{os.pathsep}{repository.environ['PATH']}"
    words = (PROGRAM, "review", "--json")
    environ = {**repository.environ, "PATH": path}
    subprocess.run(words, cwd=repository.path, env=environ, stdout=subprocess.DEVNULL, check=True)
    merged, changed = (
        b"".join(file.read_bytes() for file in sorted(directory.glob(f"{kept}.*")))
        for kept in ("merges", "changes")
    )
    assert merged, "the review tried no merge"
    tips = b"".join(line.split()[0] + b"\n" for line in changed.splitlines())
    return [
        (("for-each-ref", "refs/heads/"), b""),
        (("rev-list", "--parents", "--stdin"), b"main\n" + tips),
        (("diff-tree", "--stdin", "-r", "-z", "-M", "--numstat"), changed),
        (("merge-tree", "--write-tree", "--stdin", "-z", "--name-only"), merged),
    ]


def _work(files: int) -> Iterator[bytes]:
    """Yield a history of the main branch, and branches from commits all over its younger part."""
    random = Random(files)  # noqa: S311 -- the same repository each time
    when = 1767323045
    yield _commit("main", "refs/heads/main^0", 1, when, random, files)
    for number in range(2, COMMITS):
        yield _commit("main", f":{number - 1}", number, when + number * 60, random, files)
    mark = COMMITS
    for branch in range(BRANCHES):
        start = random.randrange(max(1, COMMITS - _RECENT), COMMITS)
        for turn in range(random.randrange(1, 5)):
            origin = f":{mark - 1}" if turn else f":{start}"
            yield _commit(f"ralph/{branch:04x}", origin, mark, when + (COMMITS + turn) * 60, random, files)
            mark += 1


def _commit(branch: str, origin: str, mark: int, when: int, random: Random, files: int) -> bytes:
    rows = [
        f"commit refs/heads/{branch}\nmark :{mark}\n".encode(),
        f"committer A. Tester <tester@example.invalid> {when} +0000\ndata 4\nwork\nfrom {origin}\n".encode(),
    ]
    for number in random.sample(range(files), min(files, random.randint(1, _FILES_A_COMMIT))):
        content = b"".join(b"%d: %s\n" % (line, random.randbytes(8).hex().encode()) for line in range(40))
        name = f"src/{number // 50:04d}/{number % 50:02d}.txt".encode()
        rows.append(b"M 100644 inline %s\ndata %d\n%s\n" % (name, len(content), content))
    return b"".join(rows)
