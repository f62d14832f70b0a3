"""Who a process is, and whether the owner of a record is provably dead."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path


class Life(Enum):
    """What can be proved about the owner of a record."""

    ALIVE = "alive"
    DEAD = "dead"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Identity:
    """A process, told apart from every other one that ever ran.

    Attributes:
        pid: its number in its own pid namespace.
        start_time: seconds since the epoch, as the kernel remembers it.
        boot_id: the running kernel (``random(4)``: /proc/sys/kernel/random/boot_id).
        pid_namespace: where *pid* means something (``pid_namespaces(7)``).
        host: the host or container name.

    """

    pid: int
    start_time: float
    boot_id: str
    pid_namespace: str
    host: str


def myself() -> Identity:
    """Return the identity of this process."""
    return Identity(
        pid=os.getpid(),
        start_time=start_time(),
        boot_id=boot_id(),
        pid_namespace=_pid_namespace(),
        host=socket.gethostname(),
    )


def judge(*, locked: bool, owner_boot_id: str, owner_host: str, boot_id: str, host: str) -> Life:
    """Tell what is known of an owner from the lock it would hold, and from where it ran.

    Arguments:
        locked: somebody holds the owner's lock; the kernel frees it when its holder dies.
        owner_boot_id: the kernel that the owner ran on.
        owner_host: the host or container name it had.
        boot_id: this kernel.
        host: this host or container name.

    """
    if locked:
        return Life.ALIVE
    if owner_boot_id == boot_id or owner_host == host:
        return Life.DEAD
    return Life.FOREIGN


def start_time() -> float:
    """Return when this process was started, in seconds since the epoch."""
    import psutil  # noqa: PLC0415 -- slow, and most commands do not need it

    return psutil.Process().create_time()


@cache
def boot_id() -> str:
    """Return what names the running kernel; where there is no such id, its boot time in seconds."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        import psutil  # noqa: PLC0415 -- slow, and Linux does not need it here

        return f"booted-{psutil.boot_time():.0f}"


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
