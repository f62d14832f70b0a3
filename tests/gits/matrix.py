"""The tests on each git that is supported, with the oldest and the newest Python: ``make test-gits``.

Each row is one git and one Python, in a container of its own (:mod:`tests.gits.machine`). Its result is kept.
A row runs again if the package, the tests, the git or the container has changed, or if it failed. A row that
is not complete goes on where it stopped. The rows that wait longest come first.

Environment:
    ROWS            only these rows, for example ``2.30/3.11 newest/3.13``
    GITS_MINUTES    begin no suite that would end later than this; what is left is *not run (time)*
    GITS_JOBS       processes that run tests at once in a row (6)
    SUITES          only these suites; such a result is not kept

The output of a row is in ``results/`` of the directory that ``tests/gits/install --where`` prints.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

import docker
from docker.errors import NotFound
from docker.models.containers import Container

from ralph_wrap.system import files
from tests.container.image import connect
from tests.gits.machine import PYTHONS, ROOT, ensure_image, ensure_packages
from tests.support import checkout

GITS = ("2.30", "2.39", "2.47", "newest")
SUITES = ("git", "worktree", "session", "crash", "commands", "security")

NOT_HERE = "not (container or agents or browser or kubernetes or storm or matrix)"
"""The cases of ``make test``."""

_DECISIVE = ("ralph_wrap/", "tests/", "pyproject.toml")
"""What decides the result of a row."""

_COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped)")
_UNKNOWN_SECONDS = 300.0  # of a suite that has not run yet
_NEEDED = {"REQUIRE_LOCALES": "1", "REQUIRE_SANDBOX": "1", "REQUIRE_SSH": "1"}
_PATH = "/opt/venv/bin:/opt/git/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PREPARE = (
    "python3 -m venv /opt/venv"
    " && /opt/venv/bin/pip install --quiet --no-index --find-links=/opt/packages --upgrade pip"
    " && cd /opt/ralph-wrap"
    " && /opt/venv/bin/pip install --quiet --no-index --find-links=/opt/packages --group test --editable ."
)


@dataclass(frozen=True, order=True)
class Row:
    """A git and a Python."""

    git: str
    python: str

    @property
    def name(self) -> str:
        """The name by which ``ROWS`` chooses it."""
        return f"{self.git}/{self.python}"

    @property
    def file(self) -> str:
        """The beginning of the names of its files."""
        return f"git-{self.git}-python-{self.python}"


@dataclass
class Result:
    """What became of a row.

    Attributes:
        key: of all that decides the result.
        git: version, as git says it.
        seconds: by suite; one without an entry was not run.
        counts: of passed, failed and skipped tests.
        at: time of the end, in seconds since 1970.

    """

    key: str
    git: str
    seconds: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    at: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether each suite was run."""
        return self.seconds.keys() >= {*SUITES}

    @property
    def is_red(self) -> bool:
        """Whether a test failed, or could not run."""
        return bool(self.counts.get("failed"))


class Deadline:
    """The time after which no suite begins, if there is one."""

    def __init__(self, minutes: str) -> None:
        self._at = time.monotonic() + float(minutes) * 60 if minutes else None

    def leaves(self, seconds: float) -> bool:
        """Return whether something that takes this long would end in time."""
        return self._at is None or time.monotonic() + seconds <= self._at


def main() -> int:
    """Run the rows, print the table, and return the exit status."""
    environ = os.environ
    where = subprocess.run(
        [ROOT / "tests/gits/install", "--where"], capture_output=True, text=True, check=True
    )
    directory = Path(where.stdout.strip())
    results = directory / "results"
    results.mkdir(parents=True, exist_ok=True)
    suites = tuple(environ.get("SUITES", "").split()) or SUITES
    chosen = environ.get("ROWS", "").split()
    rows = [Row(git, python) for git in GITS for python in PYTHONS]
    if unknown := {*chosen} - {row.name for row in rows}:
        print(f"no such row: {' '.join(sorted(unknown))}; there are {' '.join(row.name for row in rows)}")
        return 2
    rows = [row for row in rows if not chosen or row.name in chosen]

    source = checkout.digest(_DECISIVE)
    engine = connect()
    known = {row: read(results / f"{row.file}.json") for row in rows}
    deadline = Deadline(environ.get("GITS_MINUTES", ""))
    order = {
        row: (result.is_complete, result.at) if result else (False, 0.0) for row, result in known.items()
    }
    ran: dict[Row, Result] = {}
    for row in sorted(rows, key=lambda row: order[row]):
        machine = Machine(engine, directory, row)
        key = f"{source} {machine.key}"
        before = known[row]
        result = Result(key, machine.git)
        if before and before.key == key and not before.is_red and suites == SUITES:
            result = before
        ran[row] = result
        if result.is_complete:
            continue
        estimates = before.seconds if before else {}
        kept = results / f"{row.file}.json" if suites == SUITES else None
        _run(machine, result, suites, deadline, estimates, results / f"{row.file}.log", kept)
    for line in table(rows, ran, suites):
        print(line)
    red = [row for row in rows if ran[row].is_red]
    for row in red:
        print(f"failed: git {row.git}, Python {row.python}: see {results / row.file}.log")
    return 1 if red else 0


def table(rows: list[Row], ran: dict[Row, Result], suites: tuple[str, ...]) -> list[str]:
    """Return the table of the results."""
    lines = [f"{'git':<14}{'Python':<8}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}"]
    for row in rows:
        result = ran[row]
        numbers = [result.counts.get(name, 0) for name in ("passed", "failed", "skipped")]
        missing = [suite for suite in suites if suite not in result.seconds]
        if len(missing) == len(suites):
            lines.append(f"{result.git:<14}{row.python:<8}  not run (time)")
            continue
        note = f"  not run (time): {', '.join(missing)}" if missing else ""
        passed, failed, skipped = numbers
        seconds = sum(result.seconds.values())
        lines.append(
            f"{result.git:<14}{row.python:<8}{passed:>8}{failed:>8}{skipped:>9}{seconds:>9.0f}{note}"
        )
    return lines


class Machine:
    """The container of a row."""

    def __init__(self, engine: docker.DockerClient, directory: Path, row: Row) -> None:
        git = directory / row.git
        if not (git / "bin/git").is_file():
            sys.exit(f"there is no git {row.git} in {directory}: run tests/gits/install")
        self.git_directory = git.resolve()
        version = subprocess.run([git / "bin/git", "version"], capture_output=True, text=True, check=True)
        self.git = version.stdout.removeprefix("git version ").strip()
        self._engine = engine
        self._image = ensure_image(engine, row.python)
        self._packages = ensure_packages(directory, row.python)
        self.key = f"{self.git} {self._image} {self._packages.name}"

    def start(self, archive: bytes) -> Container:
        """Start the container, with the repository and a virtual environment in it."""
        container = self._engine.containers.run(
            self._image,
            ["sleep", "infinity"],
            detach=True,
            init=True,
            cap_add=["SYS_ADMIN"],  # some tests mount file systems and make namespaces
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            network_mode="none",
            shm_size="12g",
            cpu_shares=512,
            volumes={
                str(self.git_directory): {"bind": "/opt/git", "mode": "ro"},
                str(self._packages): {"bind": "/opt/packages", "mode": "ro"},
            },
            environment={
                "PATH": _PATH,
                "EXPECTED_GIT": self.git,
                **_NEEDED,
            },
            labels=["ralph-wrap-test"],
        )
        container.put_archive("/opt", archive)
        status, output = container.exec_run(["sh", "-c", _PREPARE])
        if status != 0:
            container.remove(force=True)
            assert isinstance(output, bytes)
            sys.exit(f"no virtual environment in {self._image}:\n{output.decode(errors='replace')}")
        return container


def _run(
    machine: Machine,
    result: Result,
    suites: tuple[str, ...],
    deadline: Deadline,
    estimates: dict[str, float],
    log: Path,
    kept: Path | None,
) -> None:
    """Run the suites of a row that have not run, as far as the time allows.

    Arguments:
        kept: the file for the result; ``None`` if it is not kept.

    """
    waiting = [suite for suite in suites if suite not in result.seconds]
    if not deadline.leaves(estimates.get(waiting[0], _UNKNOWN_SECONDS)):
        return
    container = machine.start(checkout.archive(prefix="ralph-wrap/"))
    try:
        with log.open("ab" if result.seconds else "wb") as output:
            for suite in waiting:
                if not deadline.leaves(estimates.get(suite, _UNKNOWN_SECONDS)):
                    break
                print(f"git {machine.git}, {log.stem}: {suite}", flush=True)
                began = time.monotonic()
                status, found = _pytest(container, suite, output)
                if status not in {0, 1} or (status == 1 and not found["failed"]):
                    found["failed"] += 1  # pytest itself failed
                add(result, suite, time.monotonic() - began, found, kept)
    finally:
        with suppress(NotFound):
            container.remove(force=True, v=True)


def add(result: Result, suite: str, seconds: float, found: Counter[str], kept: Path | None) -> None:
    """Add a suite that has ended to the result of its row, and keep it: the next suite may take an hour.

    Arguments:
        found: its numbers of tests.
        kept: the file for the result; ``None`` if it is not kept.

    """
    result.seconds[suite] = seconds
    result.counts = dict(Counter(result.counts) + found)
    result.at = time.time()
    if kept is not None:
        content = json.dumps(asdict(result)).encode()
        files.replace(kept, content)


def _pytest(container: Container, suite: str, output: IO[bytes]) -> tuple[int, Counter[str]]:
    """Run one suite, write what it prints, and return its exit status and counts."""
    words = ["tests/in_memory", "nice", "pytest", "--dist", "worksteal", "-p", "no:cacheprovider"]
    words += [
        "--numprocesses",
        os.environ.get("GITS_JOBS", "6"),
        "-m",
        NOT_HERE,
        f"tests/{suite}",
    ]
    api = container.client.api  # type: ignore[union-attr]
    started = api.exec_create(container.id, words, workdir="/opt/ralph-wrap")["Id"]
    last = b""
    for piece in api.exec_start(started, stream=True):
        output.write(piece)
        output.flush()
        last = (last + piece)[-4000:]
    status = api.exec_inspect(started)["ExitCode"]
    summary = last.decode(errors="replace").rstrip().rpartition("\n")[2]
    counts: Counter[str] = Counter()
    for number, name in _COUNTS.findall(summary):
        counts["failed" if name.startswith("error") else name] += int(number)
    return status, counts


def read(path: Path) -> Result | None:
    """Return the result that is kept of a row, ``None`` if there is none."""
    try:
        return Result(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


if __name__ == "__main__":
    sys.exit(main())
