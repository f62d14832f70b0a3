"""Facts about our container from the kernel and the container engine, read from ``/proc`` (``proc(5)``).

An agent can start a process that looks like any other one. So the look of a process proves nothing. PID 1 is
the process that the container was started for. The same holds for the first child of a small init that only
passes signals on. No later process can replace these two.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MARKS = ("/.dockerenv", "/run/.containerenv")
"""Files that engines put into their containers."""

HOST_NAMESPACE = "pid:[4026531836]"
"""The first pid namespace of a kernel (PROC_PID_INIT_INO in <linux/proc_ns.h>)."""

_CGROUP = re.compile("docker|kubepods|libpod|containerd")
_FORWARDING = {"docker-init", "podman-init", "tini", "tini-static", "dumb-init", "catatonit"}
# Options of Python with a value are matched separately, so that no command line has two readings.
_INIT = re.compile(
    r"(?:(?:[^\0]*/)?python[^\0/]*\0(?:-[XW]\0[^\0]*\0|-(?![XW]\0)[^\0]*\0)*)?"
    r"(?:(?:(?:[^\0]*/)?ralph-wrap|(?<=m\0)ralph_wrap)\0init\0"  # it reads its command line
    r"|(?<=m\0)ralph_wrap\.interfaces\.init\0([0-9.]+)\0)"  # and becomes this program
)


class ContainerProcess(NamedTuple):
    """A process and its command line, which is empty if it cannot be read."""

    pid: int
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """File name of its program."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def is_init(self) -> bool:
        """It is ``ralph-wrap init``, by its script or as a module."""
        return self._init() is not None

    @property
    def stop_timeout(self) -> float | None:
        """Seconds that it gives sessions, if it is ``ralph-wrap init``; ``None`` while that one starts."""
        found = self._init()
        return float(found[1]) if found and found[1] else None

    def _init(self) -> re.Match[str] | None:
        return _INIT.match("".join(f"{word}\0" for word in self.words))


def process(root: Path, pid: int) -> ContainerProcess:
    """Return a process.

    Arguments:
        root: where ``/proc`` is.
        pid: its number.

    """
    line = text(below(root, f"/proc/{pid}/cmdline"))
    return ContainerProcess(pid, tuple(line.removesuffix("\0").split("\0")) if line else ())


def mark(root: Path) -> str | None:
    """Return the evidence that this is a container, ``None`` if there is none.

    Arguments:
        root: where ``/proc`` is.

    """
    for path in MARKS:
        if below(root, path).exists():
            return path
    if _CGROUP.search(text(below(root, "/proc/1/cgroup"))):
        return "/proc/1/cgroup"
    return "its own pid namespace" if namespace(root) not in {"", HOST_NAMESPACE} else None


def init(root: Path) -> ContainerProcess | None:
    """Return the ``ralph-wrap init`` that gets the signals of ``docker stop``, ``None`` if there is none.

    Arguments:
        root: where ``/proc`` is.

    """
    first = process(root, 1)
    if first.is_init:
        return first
    if first.name in _FORWARDING:
        # The first child is its own. A daemon of an agent, which it adopts, comes later.
        for _, pid in sorted(_children(root)):
            eldest = process(root, pid)
            return eldest if eldest.is_init else None
    return None


def is_of_init() -> bool:
    """Return whether we run in a container that ``ralph-wrap init`` was started for."""
    root = Path("/")
    try:
        ours = os.fspath(Path("/proc/self").readlink()) == str(os.getpid())
    except OSError:
        return False
    found = init(root) if ours else None  # a /proc of another pid namespace shows other processes.
    # On a host, or in a container that shares the host's pid namespace, a small init proves nothing. It may
    # belong to another container.
    return found is not None and (found.pid == 1 or namespace(root) not in {"", HOST_NAMESPACE})


def is_below_first(root: Path, pid: int) -> bool:
    """Return whether PID 1 has started a process, directly or not; ``docker exec`` starts its own.

    A daemon, such as the server of tmux, leaves the process that has started it: PID 1 only adopts it. It has
    a session of its own then (setsid(2)), which a child that PID 1 has started itself has not.

    Arguments:
        root: where ``/proc`` is.
        pid: of the process.

    """
    while pid > 1:
        fields = text(below(root, f"/proc/{pid}/stat")).rpartition(")")[2].split()
        parent = int(fields[1]) if fields[1:2] else 0
        if parent == 1:
            return fields[3:4] == text(below(root, "/proc/1/stat")).rpartition(")")[2].split()[3:4]
        pid = parent
    return pid == 1


def namespace(root: Path) -> str:
    """Return the name of our pid namespace; empty if it is unknown."""
    try:
        return os.fspath(below(root, "/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def text(path: Path) -> str:
    """Return the content of a file; empty if it cannot be read."""
    try:
        return path.read_bytes().decode(errors="surrogateescape")
    except OSError:
        return ""


def below(root: Path, path: str) -> Path:
    """Return an absolute path, as seen from another root."""
    return root / path.removeprefix("/")


def _children(root: Path) -> Iterator[tuple[int, int]]:
    """Yield start and pid of the children of PID 1 (``proc(5)``: stat, fields 22 and 4)."""
    for entry in below(root, "/proc").glob("[0-9]*"):
        fields = text(entry / "stat").rpartition(")")[2].split()
        if fields[1:2] == ["1"]:
            yield int(fields[19]), int(entry.name)
