"""``make test-machines``: ``make test`` in fresh containers with little more than git and make.

Each row is a Debian, a user, and what the kernel lets that user do. A row fails if a test fails there, and
also if one is skipped for a reason that this machine does not have. A row that has passed with these very
files is not run again. The rows that wait longest come first.

Environment:
    ROWS               only these rows, for example ``trixie-root-plain bookworm-user-admin``
    MACHINES_MINUTES   after these, no row begins, and the one that runs is ended: *not run (time)* (240)

The output of each row is in ``~/.cache/ralph-wrap/machines``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from docker.errors import DockerException

from tests.container import base_image
from tests.container.image import NoEngineError, connect
from tests.support import checkout

if TYPE_CHECKING:
    from collections.abc import Sequence

    import docker
    from docker.models.containers import Container

    class Writable(Protocol):
        """A file that takes bytes."""

        def write(self, data: bytes, /) -> object:
            """Take some."""


CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ralph-wrap" / "machines"
DEFAULT_MINUTES = 240

_IMAGES = "ralph-wrap-machine"
_PIP_CACHES = "ralph-wrap-machines-pip"
"""A volume, so that each machine does not download all packages again."""

_OF_THIS_MACHINE = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pip.conf"))
"""Certificates that it trusts, and the package index that it uses."""

_BOOTSTRAP = (
    "mmdebstrap",
    "--quiet",
    "--variant=minbase",
    '--aptopt=APT::Install-Recommends "false"',
    '--aptopt=Acquire::Languages "none"',
    '--aptopt=Acquire::Retries "3"',
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
)
_RIGHTS = {"cap_add": ["SYS_ADMIN"], "security_opt": ["apparmor=unconfined", "seccomp=unconfined"]}

# Why tests may be skipped: parts of the reasons that tests/support/needs.py and the fixtures give.
_NOTHING_INSTALLED = (
    "not installed",
    "is installed: apt-get",  # no Chromium is
    "no Docker engine answers",
    "bubblewrap makes no sandbox here",
    "no Landlock",
    "this is a container itself",
)
_PLAIN = ("mount nothing", "no pid namespace")
_NO_LIMITS = ("no user namespace can have limits", "has not all capabilities")  # /proc/sys is read-only
_OF_A_USER = (
    "neither give files away",
    "make no device",
    "drop no capabilities",
    "only root is refused by Claude Code",
    "the client logs in as root",
)
_HIDDEN = ("other users cannot run what is in the directory of this checkout",)  # it is in /root


@dataclass(frozen=True, slots=True)
class Machine:
    """A row of the table.

    Attributes:
        suite: of Debian.
        user: ``root`` or ``user``.
        may_administer: whether the container has the capability SYS_ADMIN, and no filter of system calls.

    """

    suite: str
    user: str
    may_administer: bool

    @property
    def name(self) -> str:
        """Return the name by which ``ROWS`` chooses it."""
        return f"{self.suite}-{self.user}-{'admin' if self.may_administer else 'plain'}"

    @property
    def packages(self) -> tuple[str, ...]:
        """Return what is installed: the Makefile of a user cannot install the module venv."""
        return ("ca-certificates", "git", "make", *(() if self.user == "root" else ("python3-venv",)))

    @property
    def directory(self) -> str:
        """Return where the checkout is."""
        return f"{'/root' if self.user == 'root' else f'/home/{self.user}'}/ralph-wrap"

    @property
    def lacks(self) -> tuple[str, ...]:
        """Return parts of the reasons for which a test may be skipped."""
        if self.user == "root":
            rights = () if self.may_administer else _PLAIN
            return (*_NOTHING_INSTALLED, *_NO_LIMITS, *_HIDDEN, *rights)
        return (*_NOTHING_INSTALLED, *_NO_LIMITS, *_PLAIN, *_OF_A_USER)


MACHINES = [
    Machine(suite, user, may_administer)
    for suite in ("bookworm", "trixie")
    for user in ("root", "user")
    for may_administer in (False, True)
]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What ``make test`` has said on a machine.

    Attributes:
        counts: of passed, failed and skipped tests; empty if pytest did not come to its end.
        faults: why the row fails; empty if it does not.

    """

    counts: dict[str, int]
    faults: list[str]


def read(output: str, status: int, lacks: Sequence[str]) -> Outcome:
    """Read the output of ``make test``.

    Arguments:
        output: all of it.
        status: its exit status.
        lacks: parts of the reasons for which tests may be skipped.

    """
    lines = output.splitlines()
    counts: dict[str, int] = {}
    for line in lines:
        if summary := re.fullmatch(r"[= ]*((?:\d+ [a-z]+,? )+)in [\d.]+s.*", line):
            found = re.findall(r"(\d+) ([a-z]+)", summary[1])
            counts = {"failed" if word.startswith("error") else word: int(number) for number, word in found}
    faults = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    for line in lines:
        skip = re.match(r"SKIPPED \[(\d+)\] [^ ]+: (.*)", line)
        if skip and not any(part in skip[2] for part in lacks):
            faults.append(f"skipped {skip[1]} without need: {skip[2]}")
    if not faults and (status != 0 or not counts.get("passed")):
        faults = [f"make test ended with {status}: {''.join(lines[-1:])}"]
    return Outcome(counts, faults)


def _ensure_image(engine: docker.DockerClient, machine: Machine) -> str:
    """Return the name of the image of a machine, making it if the engine has none."""
    bootstrap = (*_BOOTSTRAP, f"--include={','.join(machine.packages)}")
    return base_image.ensure_suite(engine, _IMAGES, bootstrap, machine.suite)


def run(engine: docker.DockerClient, machine: Machine, log: Path, seconds: float) -> Outcome | None:
    """Do what README says in a new container, and return what came of it; ``None`` if the time is up.

    Arguments:
        engine: of Docker.
        machine: the row.
        log: gets what ``make test`` prints.
        seconds: how long it may take.

    Raises:
        base_image.BaseImageError: Debian's packages cannot be had.

    """
    owner = 0 if machine.user == "root" else 1000
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    volumes = {str(path): {"bind": str(path), "mode": "ro"} for path in _OF_THIS_MACHINE if path.exists()}
    rights: dict[str, Any] = _RIGHTS if machine.may_administer else {}
    container = engine.containers.run(
        _ensure_image(engine, machine),
        ["bash", "-c", "sleep infinity; true"],  # a shell is PID 1, as of `docker run -it`
        detach=True,
        volumes={**volumes, _PIP_CACHES: {"bind": "/pip", "mode": "rw"}},
        environment={**proxies, "PIP_CACHE_DIR": f"/pip/{owner}", "LANG": "C.UTF-8"},
        labels=["ralph-wrap-test"],
        **rights,
    )
    is_over = threading.Event()

    def end() -> None:
        is_over.set()
        container.kill()

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        if owner:
            _do(container, "useradd", "--create-home", "--uid", str(owner), machine.user)
        for directory in (machine.directory, f"/pip/{owner}"):
            _do(container, "install", "-d", "-o", str(owner), "-g", str(owner), directory)
        container.put_archive(machine.directory, checkout.archive(owner))
        with log.open("wb") as output:
            status = _make_test(engine, container, machine, output)
    except DockerException:
        if not is_over.is_set():
            raise
        return None
    finally:
        timer.cancel()
        container.remove(force=True, v=True)
    return None if is_over.is_set() else read(log.read_text(errors="replace"), status, machine.lacks)


def _do(container: Container, *words: str) -> None:
    status, output = container.exec_run(list(words))
    if status != 0:
        sys.exit(f"{' '.join(words)} ended with {status}: {output!r}")


def _make_test(engine: docker.DockerClient, container: Container, machine: Machine, output: Writable) -> int:
    words = ["make", "test"]
    created = engine.api.exec_create(container.id, words, user=machine.user, workdir=machine.directory)
    for piece in engine.api.exec_start(created["Id"], stream=True):
        output.write(piece)
    status: int = engine.api.exec_inspect(created["Id"])["ExitCode"]
    return status


def main() -> int:
    """Run the rows that have not passed yet, print the table, and return 1 if a row has failed."""
    names = [machine.name for machine in MACHINES]
    chosen = os.environ.get("ROWS", "").split() or names
    if unknown := {*chosen} - {*names}:
        print(f"no such row: {' '.join(sorted(unknown))}; there are {' '.join(names)}", file=sys.stderr)
        return 2
    try:
        engine = connect()
    except NoEngineError as error:
        print(error, file=sys.stderr)
        return 2
    CACHE.mkdir(parents=True, exist_ok=True)
    content = checkout.digest()
    end = time.monotonic() + 60 * float(os.environ.get("MACHINES_MINUTES") or DEFAULT_MINUTES)
    rows = [machine for machine in MACHINES if machine.name in chosen]
    lines = {}
    is_red = False
    for machine in sorted(rows, key=_last_run):
        log, result = (CACHE / f"{machine.name}.{kind}" for kind in ("log", "json"))
        before = json.loads(result.read_text()) if result.exists() else {}
        if before.get("content") == content:
            lines[machine] = _line(machine, before["counts"], "passed before, with the same files")
            continue
        left = end - time.monotonic()
        outcome = None
        if left > 0:
            print(f"{machine.name}: make test, see {log}", flush=True)
            outcome = run(engine, machine, log, left)
        if outcome is None:
            lines[machine] = f"{machine.name:22}  not run (time)"
            continue
        lines[machine] = _line(machine, outcome.counts, "FAILED" if outcome.faults else "passed")
        for fault in outcome.faults:
            print(f"{machine.name}: {fault}", flush=True)
        if outcome.faults:
            is_red = True
        else:
            result.write_text(json.dumps({"content": content, "counts": outcome.counts}))
    print(f"{'machine':22}{'passed':>8}{'failed':>8}{'skipped':>9}")
    for machine in rows:
        print(lines[machine])
    return int(is_red)


def _last_run(machine: Machine) -> float:
    log = CACHE / f"{machine.name}.log"
    return log.stat().st_mtime if log.exists() else 0.0


def _line(machine: Machine, counts: dict[str, int], verdict: str) -> str:
    numbers = "".join(f"{counts.get(word, 0):{width}}" for word, width in _COLUMNS.items())
    return f"{machine.name:22}{numbers}  {verdict}"


_COLUMNS = {"passed": 8, "failed": 8, "skipped": 9}


if __name__ == "__main__":
    sys.exit(main())
