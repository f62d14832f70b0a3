"""PID 1 of a pid namespace, which is as good as a container, and processes that print their signals."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.support.needs import PID_NAMESPACES
from tests.support.sessions import PROGRAM
from tests.support.wait import CAP, eventually

NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""Runs a command as PID 1, where the kernel lets it: see ``needs.PID_NAMESPACES``."""

PROMPT = 6.0
"""Seconds until PID 1 has ended at the latest if nothing holds it up; it ends in any case after 8 s."""

_LISTENER = '''
"""Write down every signal. Usage: PROGRAM run NAME COUNT [KEY=VALUE...]; ends at the COUNT-th one that ends.

deaf=1 ignores TERM; child=NAME has a child that listens, too; record=JSON registers a session, with what JSON
says of it in the place of what is so; unlocked=1 does not hold the lock of this session.
"""
import fcntl, json, os, signal, sys

name, count = sys.argv[2], int(sys.argv[3])
more = dict(word.split("=", 1) for word in sys.argv[4:])
ending = 0

def note(number, _):
    global ending
    with open(f"{name}.signals", "a") as file:
        print(signal.Signals(number).name, file=file)
    ending += number in {signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}

child = os.fork() if "child" in more else None
if child == 0:
    name, count = more["child"], 0
    more = {}
for each in ("TERM", "HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "CONT", "TSTP"):
    signal.signal(getattr(signal, f"SIG{each}"), note)
if "deaf" in more:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "record" in more:
    started = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    record = {
        "version": 1, "id": "abcd", "session": "20260101T000000Z-abcd", "pid": os.getpid(),
        "start_time": started, "pid_namespace": os.readlink("/proc/self/ns/pid"),
        **json.loads(more["record"]),
    }
    os.makedirs(".ralph/run/agents", exist_ok=True)
    lock = open(".ralph/run/agents/abcd.lock", "w")
    if "unlocked" not in more:
        fcntl.flock(lock, fcntl.LOCK_EX)
    with open(".ralph/run/agents/abcd.json", "w") as file:
        json.dump(record, file)
with open(f"{name}.new", "w") as file:
    print(os.getpid(), file=file)
os.rename(f"{name}.new", f"{name}.pid")
while not count or ending < count:
    signal.sigtimedwait((), 0.01)
if child:
    os.kill(child, signal.SIGKILL)
'''


def _bits(pid: int, field: str) -> set[int]:
    """Return the signals in a mask of ``/proc/PID/status``."""
    found = re.search(rf"^{field}:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    mask = int(found[1], 16) if found else 0
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def children(pid: int) -> dict[int, str]:
    """Return pid and command line of the children of a process; no command line is a zombie's."""
    found = {}
    with contextlib.suppress(OSError):
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            with contextlib.suppress(OSError):
                found[child] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
    return found


def zombies(pid: int) -> int:
    """Return how many children of a process have ended and were not reaped."""
    states = []
    for child in children(pid):
        with contextlib.suppress(OSError):
            states.append(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0])
    return states.count("Z")


def _is_idle(pid: int) -> bool:
    """Return whether an init waits for signals: it has handlers, and none is blocked."""
    with contextlib.suppress(OSError):
        return signal.SIGTERM in _bits(pid, "SigCgt") - _bits(pid, "SigBlk")
    return False


class Container:
    """A pid namespace whose PID 1 is ours, or runs it; leaving the context kills everything in it.

    Where the kernel makes none for us, the test is skipped.

    Arguments:
        project: where everything is started.
        arguments: of ``ralph-wrap init``.
        under: what PID 1 is instead; it must run the rest of its command line.
        env: added to our environment.

    """

    def __init__(
        self, project: Path, *arguments: str, under: tuple[str, ...] = (), env: dict[str, str] | None = None
    ) -> None:
        PID_NAMESPACES.check()
        self.project = project
        self._log = project.with_name(f"{project.name}.log")
        self._inside: list[subprocess.Popen[bytes]] = []
        with self._log.open("wb") as log:
            self._outer = subprocess.Popen(
                (*NAMESPACE, *under, PROGRAM, "init", *arguments),
                cwd=project,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        self._under = under

    def __enter__(self) -> Self:
        try:
            self.first = eventually(lambda: next(iter(children(self._outer.pid)), None), "PID 1")
            self.pid = eventually(self._find, "an init that waits")
        except AssertionError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._outer, *self._inside):
            process.kill()
            process.wait()

    def _find(self) -> int | None:
        candidates = [(self.first, "")]
        for pid, above in candidates:  # which grows
            words = Path(f"/proc/{pid}/cmdline").read_text()
            # A child of the init looks the same until it executes something else.
            if words != above and _is_idle(pid) and "ralph_wrap.interfaces.init" in words.split("\0"):
                return pid
            candidates += [(child, words) for child in children(pid)]
        return None

    def sweeps(self) -> list[int]:
        """Return the pids of the sweeps that run."""
        return [pid for pid, words in children(self.pid).items() if "ralph_wrap sweep" in words]

    def rest(self) -> None:
        """Wait for the end of the sweep at the start."""
        eventually(lambda: not children(self.pid), "the sweep to end")

    def execute(self, *words: str) -> subprocess.Popen[bytes]:
        """Start something as ``docker exec`` does: its parent is not in the container."""
        process = subprocess.Popen(
            ("nsenter", "--target", str(self.first), "--pid", "--mount", f"--wd={self.project}", *words),
            stdin=subprocess.DEVNULL,
        )
        self._inside.append(process)
        return process

    def listen(self, name: str, count: int = 1, *more: str, program: str = "listener") -> int:
        """Start a listener, wait until it listens, and return its pid out here."""
        outer = self.execute(*listener(self.project, name, count, *more, program=program))
        for each in (name, *(word.removeprefix("child=") for word in more if word.startswith("child="))):
            eventually((self.project / f"{each}.pid").exists, f"{each} to listen")
        return next(iter(children(outer.pid)))

    def heard(self, name: str) -> list[str]:
        """Return the signals that a listener got; CONT, which comes with each TERM, left out."""
        return [heard for heard in heard_by(self.project, name) if heard != "SIGCONT"]

    def send(self, *numbers: signal.Signals) -> None:
        """Signal the init."""
        for number in numbers:
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Return the exit status."""
        return self._outer.wait(CAP)

    @property
    def log(self) -> list[str]:
        """What the init said, without its name and the sweep's JSON."""
        lines = self._log.read_text().splitlines()
        return [
            line.removeprefix("ralph-wrap init: ") for line in lines if line.startswith("ralph-wrap init")
        ]

    @property
    def messages(self) -> str:
        """All that the init and its children said."""
        return self._log.read_text()


def listener(project: Path, name: str, count: int = 1, *more: str, program: str = "listener") -> list[str]:
    """Return the command line of a listener; with the *program* ``ralph-wrap`` it looks like a session."""
    path = project / "bin" / program
    path.parent.mkdir(exist_ok=True)
    path.write_text(_LISTENER)
    return [sys.executable, "-S", "-E", os.fspath(path), "run", name, str(count), *more]


def heard_by(project: Path, name: str) -> list[str]:
    """Return the signals that a listener got."""
    path = project / f"{name}.signals"
    return path.read_text().split() if path.exists() else []
