"""The identity of a process, and whether the owner of a record is provably dead."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.system import process_table

_NAME = "ralph/{}"  # of a process that runs a session: 14 bytes with the longest id
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, <linux/proc_ns.h>: that of the host


class Liveness(Enum):
    """The state of the owner of a record, as far as there is proof."""

    ALIVE = "alive"
    DEAD = "dead"
    FOREIGN = "foreign"


class ProcessIdentity(NamedTuple):
    """The identity of a process; no other process has ever had the same one.

    Attributes:
        pid: its number in its own pid namespace.
        start_time: when it was started (see :func:`ralph_wrap.system.process_table.start_time`).
        boot_id: the running kernel (``random(4)``: /proc/sys/kernel/random/boot_id).
        pid_namespace: where *pid* means something (``pid_namespaces(7)``).
        host: the host or container name.

    """

    pid: int
    start_time: float
    boot_id: str
    pid_namespace: str
    host: str


def myself() -> ProcessIdentity:
    """Return the identity of this process."""
    return ProcessIdentity(
        pid=os.getpid(),
        start_time=process_table.start_time(os.getpid()) or 0.0,
        boot_id=boot_id(),
        pid_namespace=pid_namespace(),
        host=host(),
    )


def judge(
    *, locked: bool, running: bool, owner_boot_id: str, owner_host: str, boot_id: str, host: str
) -> Liveness:
    """Return the state of an owner, from the lock that it would hold, and from where it ran.

    Arguments:
        locked: a process holds the owner's lock; the kernel frees it when its holder dies.
        running: we see the owner's process (:func:`is_running`), even if the file of its lock is gone.
        owner_boot_id: the kernel that the owner ran on.
        owner_host: the host or container name it had.
        boot_id: this kernel.
        host: this host or container name.

    """
    if locked or running:
        return Liveness.ALIVE
    if owner_boot_id == boot_id or owner_host == host:
        return Liveness.DEAD
    return Liveness.FOREIGN


def is_running(identity: ProcessIdentity) -> bool:
    """Return whether we see a process, and it is no zombie: same kernel, same pid namespace, same start."""
    if (identity.boot_id, identity.pid_namespace) != (boot_id(), pid_namespace()):
        return False
    return process_table.start_time(identity.pid) == identity.start_time


class SessionNames:
    """The agent ids in the names of processes: a proof of life that no record and no lock can take away.

    The process of a session bears the id of the session as its name. The names are read once, and only if a
    question needs them.
    """

    def __init__(self) -> None:
        self._names: Mapping[int, str] | None = None

    def __contains__(self, agent_id: str) -> bool:
        return bool(self.pids(agent_id))

    def pids(self, agent_id: str) -> list[int]:
        """Return the processes that bear the id of a session as their name."""
        if self._names is None:
            self._names = process_table.names()
        wanted = _NAME.format(agent_id)
        return [pid for pid, name in self._names.items() if name == wanted and process_table.is_program(pid)]


def bear_name(agent_id: str) -> Callable[[], None]:
    """Make the id of a session the name of this process; return a function that gives the old name back."""
    before = process_table.name(os.getpid())
    process_table.rename(_NAME.format(agent_id))
    return partial(process_table.rename, before)


def bears_name(pid: int, agent_id: str) -> bool:
    """Return whether a process bears the id of a session as its name."""
    try:
        return process_table.name(pid) == _NAME.format(agent_id)
    except OSError:
        return False


@cache
def boot_id() -> str:
    """Return the id of the running kernel."""
    return process_table.boot_id()


def host() -> str:
    """Return the name of the host or container."""
    return os.uname().nodename


def pid_namespace() -> str:
    """Return the name of our pid namespace; empty if ``/proc`` does not name it."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def is_of_host(pid_namespace: str) -> bool:
    """Return whether a pid namespace is the first one of its kernel: it exists as long as the kernel runs."""
    return pid_namespace == _INITIAL_PID_NAMESPACE


def sees(namespace: str) -> bool:
    """Return whether we see the processes of a pid namespace: it is ours, or one below ours."""
    if namespace == pid_namespace() or is_of_host(pid_namespace()):
        return True
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str((entry / "ns" / "pid").readlink()) == namespace:
                return True
    return False


def nested_in(owner: ProcessIdentity) -> list[int]:
    """Return our pids of the processes that have an owner's pid in its pid namespace, which is below ours."""
    found = []
    for pid in nested(owner.pid):
        with contextlib.suppress(OSError):
            if str(Path(f"/proc/{pid}/ns/pid").readlink()) == owner.pid_namespace:
                found.append(pid)
    return found


def nested(pid: int) -> list[int]:
    """Return our pids of the processes that have a pid in a pid namespace below ours (proc(5): NSpid)."""
    found = []
    for ours in process_table.pids():
        with contextlib.suppress(OSError):
            status = (process_table.PROC / str(ours) / "status").read_bytes()
            numbers = status.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()
            if len(numbers) > 1 and int(numbers[-1]) == pid:
                found.append(ours)
    return found
