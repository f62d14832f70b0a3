"""What the claims are measured on and with: repositories, agents, pairs of runs, verdicts.

Nothing is removed before all is measured, unless the removal is what is measured. An ext4 without a journal
does not reuse an inode for a minute after its file was deleted, and looks at each of them for every new file
(fs/ext4/ialloc.c: recently_deleted): both sides then take ten times as long, and the ratio says nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PROGRAM = os.fspath(Path(sys.executable).parent / "ralph-wrap")
"""The installed console script."""

FILE_SIZE = 2048
"""Bytes of each file."""

_FILES_A_DIRECTORY = 50
_PATIENCE = 600.0  # seconds until a run counts as hanging
_AGE = 3600.0  # seconds
_STEP = 0.01  # seconds between two looks

STAMP = "date +%s.%N"
"""How agents and scripts note the time: on both sides the same program, which takes about 1 ms."""


CHANGED = 100
"""Files that an agent with changes changes; it makes as many new ones."""

EDIT = f"""
for i in $(seq {CHANGED}); do echo new > "new-$i.txt"; done
for file in $(git ls-files src | head -n {CHANGED}); do echo changed >> "$file"; done
"""
"""What it does, in the shell."""


@dataclass(frozen=True)
class Verdict:
    """How a claim fared.

    Attributes:
        claim: what was measured.
        value: the measured number.
        limit: what it may be at most.
        unit: of both.
        detail: where the number comes from.

    """

    claim: str
    value: float
    limit: float
    unit: str
    detail: str

    @property
    def passed(self) -> bool:
        """Whether the limit is kept."""
        return self.value <= self.limit

    def __str__(self) -> str:
        word = "pass" if self.passed else "FAIL"
        kept = f"{self.value:.2f}{self.unit} (limit {self.limit}{self.unit})"
        return f"{word}  {self.claim}: {kept}; {self.detail}"


@contextlib.contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """Yield a new directory, which is removed whatever happens."""
    directory = Path(tempfile.mkdtemp(prefix="ralph-wrap-benchmark-", dir=parent))
    try:
        yield directory
    finally:
        while directory.exists():  # a session's background removal may still be at work in it
            shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class Repository:
    """A repository with one commit, and the sealed environment in which everything here runs."""

    path: Path
    environ: Mapping[str, str]

    def git(self, *arguments: str, stdin: bytes | None = None) -> None:
        """Run git in it."""
        subprocess.run(
            ("git", *arguments), cwd=self.path, env=self.environ, input=stdin, stdout=2, check=True
        )

    def script(self, name: str, body: str) -> str:
        """Make an executable shell script beside the repository and return its path."""
        path = self.path.parent / name
        path.write_text(f"#!/bin/sh\nset -e\n{body}\n")
        path.chmod(0o755)
        return os.fspath(path)

    def run(self, *command: str) -> Run:
        """Run a command that prints one time stamp, to its end."""
        with Waiting(self, *command) as process:
            return process.go_on()

    def settle(self) -> None:
        """Wait for background removals, and write out dirty pages, so that each run begins alike."""
        trash = self.path / ".ralph" / "run" / "trash"
        deadline = time.monotonic() + _PATIENCE
        while trash.is_dir() and any(trash.iterdir()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{trash} is not emptied")
            time.sleep(_STEP)
        os.sync()


@dataclass(frozen=True)
class Run:
    """Three moments of one run, in seconds since the epoch.

    Attributes:
        begun: just before its process was started.
        stamp: what its agent or script printed.
        ended: just after its process was reaped.

    """

    begun: float
    stamp: float
    ended: float


class Waiting:
    """A running command that may wait for the end of its standard input; it ends with the context.

    Arguments:
        repository: where it runs.
        command: its command line.

    """

    def __init__(self, repository: Repository, *command: str) -> None:
        self._begun = time.time()
        self._process = subprocess.Popen(
            command,
            cwd=repository.path,
            env=repository.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()  # a session then ends what it has started
            self._process.communicate()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def wait_until_ready(self) -> str:
        """Wait for the line "ready" and return what was printed before it."""
        assert self._process.stdout is not None
        before = b""
        for line in self._process.stdout:
            if line == b"ready\n":
                return before.decode()
            before += line
        self.go_on()
        raise RuntimeError("it ended before it was ready")

    def go_on(self) -> Run:
        """End its standard input, and wait until it has printed a time stamp and ended well."""
        stdout, stderr = self._process.communicate(timeout=_PATIENCE)
        ended = time.time()
        if self._process.returncode != 0 or b"fell_back" in stderr:
            said = stderr.decode(errors="replace")
            raise RuntimeError(f"{self._process.args!r}: status {self._process.returncode}\n{said}")
        return Run(self._begun, float(stdout.split()[-1]), ended)


def make_repository(directory: Path, files: int) -> Repository:
    """Make a repository with a number of files in one pack, as a clone has them, and check them out."""
    home = directory / "home"
    home.mkdir(parents=True)
    # PYTHON*: PYTHONDONTWRITEBYTECODE, say, has an editable installation compiled anew at each start.
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GIT_", "RALPH_", "XDG_", "PYTHON"))
    }
    sealed = {"HOME": os.fspath(home), "GIT_CONFIG_NOSYSTEM": "1"}
    for role in ("AUTHOR", "COMMITTER"):
        sealed |= {f"GIT_{role}_NAME": "A. Tester", f"GIT_{role}_EMAIL": "tester@example.invalid"}
    repository = Repository(directory / "project", inherited | sealed)
    repository.path.mkdir()
    repository.git("init", "--quiet", "--initial-branch=main")
    # Into a pack: a commit by `git add` would leave one loose object a file, which no clone has.
    repository.git(
        *("-c", "fastimport.unpackLimit=0", "fast-import", "--quiet"),
        stdin=b"".join(_commit(files)),
    )
    repository.git("reset", "--quiet", "--hard")
    _age(repository)
    return repository


def _age(repository: Repository) -> None:
    """Let the checkout be an hour old, and its index be written since.

    git reads the content of each file again that is not older than the index, in seconds (racy-git.txt in its
    documentation). Any git command of a user that refreshes the index ends that, and no command of ours does.
    """
    then = time.time() - _AGE
    for path in repository.path.rglob("*"):
        if ".git" not in path.relative_to(repository.path).parts:
            os.utime(path, (then, then))
    repository.git("update-index", "-q", "--refresh")


def _commit(files: int) -> Iterator[bytes]:
    random = Random(files)  # noqa: S311 -- the same repository each time
    yield b"commit refs/heads/main\ncommitter A. Tester <tester@example.invalid> 1767323045 +0000\n"
    yield b"data 5\nfirst\n"
    rule = b".ralph/worktrees/\n"
    yield b"M 100644 inline .gitignore\ndata %d\n%s\n" % (len(rule), rule)
    for number in range(files):
        content = random.randbytes(FILE_SIZE // 2).hex().encode()
        name = f"src/{number // _FILES_A_DIRECTORY:04d}/{number % _FILES_A_DIRECTORY:02d}.txt".encode()
        yield b"M 100644 inline %s\ndata %d\n%s\n" % (name, len(content), content)


def in_turns(repeat: int, *sides: Callable[[], float]) -> list[list[float]]:
    """Measure sides one after the other, again and again, each as often first as the others.

    Arguments:
        repeat: how often each is measured, after one warm-up that does not count.
        sides: return a measured number.

    """
    measured: list[list[float]] = [[] for _ in sides]
    for number in range(repeat + 1):
        order = range(len(sides)) if number % 2 else reversed(range(len(sides)))
        for side in order:
            value = sides[side]()
            if number:
                measured[side].append(value)
    return measured


PEER = "wt"
"""The program of worktrunk, which is measured beside us if it is installed. It saves no changes."""


def beside(verdict: Verdict, ours: Sequence[float], peers: Sequence[Sequence[float]]) -> Verdict:
    """Add to a verdict what the peer took in the same rounds; without a peer, return it as it is."""
    for times in peers:
        factor = statistics.median(one / other for one, other in zip(ours, times, strict=True))
        more = f"worktrunk {statistics.median(times):.3f} s, ours {factor:.2f}x of it"
        verdict = replace(verdict, detail=f"{verdict.detail}; {more}")
    return verdict


def compare(claim: str, limit: float, ours: Sequence[float], theirs: Sequence[float]) -> Verdict:
    """Judge the median of the ratios of neighbouring runs, which noise meets alike."""
    ratios = sorted(one / other for one, other in zip(ours, theirs, strict=True))
    detail = (
        f"ours {statistics.median(ours):.3f} s, bare git {statistics.median(theirs):.3f} s,"
        f" {len(ratios)} pairs, ratios {ratios[0]:.2f} to {ratios[-1]:.2f}"
    )
    return Verdict(claim, statistics.median(ratios), limit, "x", detail)
