"""Machines and containers to examine."""

from __future__ import annotations

import os
from pathlib import Path

from ralph_wrap.commands.doctor import Diagnosis, DoctorCheck

HOST = "pid:[4026531836]"

OWN = "pid:[4026532201]"


class World:
    """A file system with what the kernel and an engine say of the processes.

    Arguments:
        root: a new directory.

    """

    def __init__(self, root: Path, namespace: str = HOST, mark: str = "", cgroup: str = "0::/\n") -> None:
        self.root = root
        (root / "proc/self/ns").mkdir(parents=True)
        (root / "proc/self/ns/pid").symlink_to(namespace)
        self.process(1, 0, "/sbin/init")
        (root / "proc/1/cgroup").write_text(cgroup)
        if mark:
            (root / mark).parent.mkdir(exist_ok=True)
            (root / mark).touch()

    def process(self, pid: int, parent: int, *words: str, **environ: str) -> None:
        """Have a process, in the session of PID 1."""
        directory = self.root / "proc" / str(pid)
        directory.mkdir(exist_ok=True)
        (directory / "cmdline").write_text("".join(f"{word}\0" for word in words))
        (directory / "stat").write_text(f"{pid} (a ) name) S {parent} 1 1" + " 0" * 15 + f" {pid}")
        (directory / "environ").write_text("".join(f"{name}={value}\0" for name, value in environ.items()))

    def lead(self, pid: int) -> None:
        """Let a process have a session of its own (setsid(2))."""
        path = self.root / "proc" / str(pid) / "stat"
        path.write_text(path.read_text().replace(" 1 1 0", f" {pid} {pid} 0", 1))


def checked(found: Diagnosis, name: str) -> DoctorCheck:
    """Return the one check of a name."""
    [check] = [check for check in found.checks if check.check == name]
    return check


def failing(found: Diagnosis) -> list[str]:
    """Return the names of the checks that failed."""
    return [check.check for check in found.checks if not check.ok]


def verdict_of(found: Diagnosis, name: str) -> tuple[str, str]:
    """Return the verdict on a check, and what it found."""
    check = checked(found, name)
    return check.verdict, check.found


def with_environ(**changed: str) -> dict[str, str]:
    """Return our environment with some variables changed."""
    return {**os.environ, **changed}
