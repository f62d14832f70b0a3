"""Facts about processes, from ``/proc`` (``proc(5)``); psutil measures what sessions use.

psutil has no answer to most questions here: the start of a process in ticks since the boot, which no change
of the clock moves; an environment in the middle of an ``execve(2)``; whether an open file is written.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil
from psutil import Process

PROC = Path("/proc")

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD, <linux/sched.h>; proc(5): stat, field 9
_WRITING = os.O_WRONLY | os.O_RDWR
_LINKS_OF_ONE_THREAD = 3
_SHORTEST = 0.01  # seconds that an average is taken over; the kernel counts a start in such steps


def pids() -> list[int]:
    """Return the pid of every process of our pid namespace."""
    try:
        return [int(name) for name in os.listdir(PROC) if name.isdigit()]  # noqa: PTH208 -- hundreds, no objects
    except FileNotFoundError:  # a chroot without a /proc
        return []


def children(pid: int) -> list[int]:
    """Return the direct children of a process, adopted ones and zombies included."""
    found: list[int] = []
    # Path.glob() of Python 3.11 raises, too, where the process has ended.
    with contextlib.suppress(OSError):
        for task in (PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                found += map(int, (task / "children").read_text().split())
    return found


def descendants(pids: Collection[int]) -> list[int]:
    """Return the given processes and everything below them, parents first."""
    found: list[int] = []
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children(pid)
    return found


def ancestors(pid: int) -> set[int]:
    """Return the pids of a process and of everything above it."""
    found = set()
    while pid > 0:
        found.add(pid)
        try:
            fields = _stat(pid)
        except OSError:
            break
        pid = int(fields[1]) if fields else 0
    return found


def environment(pid: int) -> list[bytes]:
    """Return the entries of a process's environment; none if it has ended, or is another user's.

    In the middle of its ``execve(2)`` a process shows one entry, which is empty.
    """
    try:
        return (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def command_line(pid: int) -> bytes:
    """Return the words of a process's command line, each with a NUL after it; nothing if it has ended."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def has_other_threads() -> bool:
    """Return whether this process has another thread, perhaps one that Python does not know of.

    The directory of the threads has a link for each of them, one in its parent, and one for itself.
    """
    try:
        return (PROC / "self" / "task").stat().st_nlink != _LINKS_OF_ONE_THREAD
    except OSError:
        return True


def is_program(pid: int) -> bool:
    """Return whether a process is alive, and no thread of the kernel, which never has an environment."""
    try:
        fields = _stat(pid)
    except OSError:
        return False
    return bool(fields) and fields[0] not in {b"Z", b"X"} and not int(fields[6]) & _KERNEL_THREAD


def is_stopped(pid: int) -> bool:
    """Return whether SIGSTOP, Ctrl-Z or a debugger has stopped a process."""
    try:
        return _stat(pid)[:1] in ([b"T"], [b"t"])
    except OSError:
        return False


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal (proc(5): SigCgt); no, if that is not known."""
    try:
        status = (PROC / str(pid) / "status").read_bytes()
    except OSError:
        return False
    caught = status.partition(b"\nSigCgt:")[2].partition(b"\n")[0].strip() or b"0"
    return bool(int(caught, 16) >> (number - 1) & 1)


def processor_ticks(pid: int) -> int:
    """Return the processor time of a process and of the children it waited for; 0 if it has ended."""
    try:
        return sum(map(int, _stat(pid)[11:15]))
    except OSError:
        return 0


def bytes_read(pid: int) -> bytes:
    """Return what ``/proc`` says of the bytes that a process has read, from sockets too; empty without it."""
    try:
        return (PROC / str(pid) / "io").read_bytes().partition(b"\n")[0]  # rchar, proc_pid_io(5)
    except OSError:
        return b""


def start_time(pid: int) -> float | None:
    """Return when a process was started; ``None`` if there is none, or a zombie.

    Returns:
        Seconds since the boot (stat, field 22), which no change of the clock moves.

    Raises:
        OSError: the time cannot be read.

    """
    fields = _stat(pid)
    return None if not fields or fields[0] in {b"Z", b"X"} else int(fields[19]) / os.sysconf("SC_CLK_TCK")


def boot_id() -> str:
    """Return the id of the running kernel (``random(4)``); its boot time in seconds where that is hidden."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"booted-{psutil.boot_time():.0f}"


def name(pid: int) -> str:
    """Return the name of the program that a process runs.

    Raises:
        OSError: it has ended.

    """
    return (PROC / str(pid) / "comm").read_text(errors="replace").strip()


def names() -> dict[int, str]:
    """Return the name of each live process of our pid namespace and of those below it, by pid.

    A process alone can change its name (``proc(5)``: comm).
    """
    found = {}
    for pid in pids():
        with contextlib.suppress(OSError):
            found[pid] = name(pid)
    return found


def rename(name: str) -> None:
    """Change the name of this process, at most 15 bytes (``proc(5)``: comm)."""
    with contextlib.suppress(OSError):
        (PROC / "self" / "comm").write_text(name)


def paths_in(pid: int, directory: Path, *, open_files: bool = True) -> list[str]:
    """Return what a process uses in a directory: its working directory, and files open for writing.

    Arguments:
        pid: of the process.
        directory: its absolute path.
        open_files: also look at the open files. That takes six times as long: a process has many of them.

    Raises:
        OSError: the process has ended, or belongs to another user.

    """
    # An end of a session asks this of all processes, with thousands of descriptors: no Path is made of them.
    top, process = os.fspath(directory), f"{os.fspath(PROC)}/{pid}"
    used = os.readlink(f"{process}/cwd")  # noqa: PTH115
    found = [used] if _is_in(used, top) else []
    if not open_files:
        return found
    descriptors, readlink = f"{process}/fd/", os.readlink
    try:
        numbers = os.listdir(descriptors)  # noqa: PTH208
    except OSError:
        if found:  # it works there, whatever files it has
            return found
        raise
    for number in numbers:
        try:
            used = readlink(descriptors + number)
            if used.startswith(top) and _is_in(used, top) and _is_written(f"{process}/fdinfo/{number}"):
                found.append(used)
        except (OSError, IndexError, ValueError):  # it was closed meanwhile
            continue
    return found


def occupants(directory: Path, *, open_files: bool = True) -> list[tuple[int, str]]:
    """Return pid and name of every process that works in a directory or has a file in it open for writing.

    Those of other pid namespaces are not seen, nor, unless we are root, those of other users (``proc(5)``).
    The arguments are those of :func:`paths_in`.
    """
    found = []
    for pid in pids():
        try:
            if paths_in(pid, directory, open_files=open_files):
                found.append((pid, name(pid)))
        except OSError:
            continue
    return found


def _is_in(path: str, top: str) -> bool:
    return path.startswith(top) and (path == top or path.startswith(f"{top}/".replace("//", "/")))


def _is_written(info: str) -> bool:
    # "flags: " and an octal number
    with open(info, encoding="ascii") as lines:  # noqa: PTH123 -- see paths_in
        flags = next((line for line in lines if line.startswith("flags:")), "flags: 0")  # none if it ended
    return bool(int(flags.split()[1], 8) & _WRITING)


class ResourceUsage(NamedTuple):
    """The resources that the processes of a session use together.

    Attributes:
        processes: how many there are now.
        cpu_seconds: processor time since the session began, that of processes that have ended included.
        cpu_percent: the same as an average since then; 100 is one processor.
        memory_bytes: their memory now; memory that several of them share counts once.

    """

    processes: int
    cpu_seconds: float
    cpu_percent: float
    memory_bytes: int


def usage(owners: Mapping[str, int]) -> dict[str, ResourceUsage]:
    """Measure what sessions use: the owner, everything below it, and orphans that carry the session's id.

    Arguments:
        owners: the owner's pid for each session id.

    Returns:
        What could be measured: no session of another user, unless we are root.

    """
    marks = {f"RALPH_SESSION_ID={session}".encode(): session for session in owners}
    carriers: dict[str, set[int]] = {session: set() for session in owners}
    for pid in pids() if owners else ():
        for mark in marks.keys() & set(environment(pid)):
            carriers[marks[mark]].add(pid)
    measured = {session: _measure(owner, carriers[session]) for session, owner in owners.items()}
    return {session: found for session, found in measured.items() if found}


def _measure(owner: int, carriers: set[int]) -> ResourceUsage | None:
    try:
        first = psutil.Process(owner)
        if os.geteuid() not in {0, first.uids().effective}:
            return None
        seconds = max(time.time() - first.create_time(), _SHORTEST)
        members = {*descendants([owner])}
        members |= {*descendants(carriers - members)}
        costs = [cost for cost in map(_cost, members) if cost]
    except psutil.Error:
        return None
    cpu, memory = sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)
    return ResourceUsage(len(costs), round(cpu, 2), round(100 * cpu / seconds, 1), memory)


def _cost(pid: int) -> tuple[float, int] | None:
    """Return processor time in seconds and memory in bytes of a process; ``None`` if it has ended."""
    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        waited_for = times.children_user + times.children_system
        return times.user + times.system + waited_for, _memory(process)
    except psutil.NoSuchProcess:
        return None


def _memory(process: Process) -> int:
    # The kernel adds up a process's pages for this: 9 ms a GB. A process that was root once shows no such
    # sum to its own user (proc(5): dumpable), and a kernel without smaps knows none.
    try:
        return process.memory_full_info().pss
    except (psutil.AccessDenied, AttributeError):
        return process.memory_info().rss


def _stat(pid: int | str) -> list[bytes]:
    """Return the fields of ``stat`` from the state on, which is the third; none if there is no such file.

    Raises:
        OSError: it cannot be read.

    """
    try:
        return (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
