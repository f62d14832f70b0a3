# ruff: noqa: PTH100, PTH112, PTH115, PTH120, PTH208 -- pathlib would take a tenth of this process's memory
"""The processes of this container and the sessions among them, from ``/proc`` (``proc(5)``) and the records.

Processes start and end while this module reads them, and an agent can write records. So no function here
raises for bad content or waits for another process. A record counts only if ``/proc`` confirms it, and
shows that the process holds the lock of its session. No other process can take a lock for it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

_MINI_INITS = {"docker-init", "podman-init", "catatonit", "dumb-init", "tini", "tini-static"}
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, <linux/proc_ns.h>: the host's namespace
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD, <linux/sched.h>; the flags are field 9 of stat

_RECORD = re.compile(r"(?:[0-9a-f]{4}){1,2}\.json")
_SESSION = re.compile(r"\d{8}T\d{6}Z-(?:[0-9a-f]{4}){1,2}")
_LARGEST_RECORD = 1 << 16  # bytes; a real one has less than 1,000, and a long command in it is cut
_LOCK = re.compile(rb"^\d+: FLOCK +\w+ +WRITE (\d+) [^ ]*:(\d+) ", re.MULTILINE)  # proc(5): pid and inode
_LARGEST_TABLE = 1 << 24  # bytes; a lock has about 50
_RECORDS_TIME = 0.5  # seconds for all records: a project full of large ones must not delay our signals

# Every command that runs sessions, or passes the signals on to those that it has started: a session that gets
# TERM from us and from its batch takes the second one for "hurry", and its agent loses the grace.
# The pattern separates the options of Python that take a word, so that it can match a line in only one way.
# A pattern with two ways can take exponential time on a command line that an agent chooses.
_WRAPPER = re.compile(
    rb"(?:(?:[^\0]*/)?python[^\0/]*\0(?:-[XW]\0[^\0]*\0|-(?![XW]\0)[^\0]*\0)*"
    rb"(?:(?<!-[XW]\0)-[^\0]*m\0ralph_wrap|(?:[^\0-][^\0]*/)?ralph-wrap)"
    rb"|(?:[^\0]*/)?ralph-wrap)\0(?:run|spawn|resume|batch|fleet\0(?:work|run))\0"
)

# The program that deletes a worktree which is saved and removed (``worktree.trash.deletion``).
_DELETION = re.compile(rb"[^\0]+\0-I\0-S\0-X\0utf8\0[^\0]*/delete_tree\.py\0")


class ProcessInfo(NamedTuple):
    """A process of this pid namespace; pid and start time identify it.

    Attributes:
        pid: its number.
        name: the name of its program, for people.
        parent: the pid of its parent; 0 for a parent outside this namespace, as with ``docker exec``.
        started: seconds since the boot, as in the record of a session.

    """

    pid: int
    name: str
    parent: int
    started: float

    def is_same(self, other: ProcessInfo | None) -> bool:
        """Return whether this is the same process; its name and parent may change."""
        return other is not None and (self.pid, self.started) == (other.pid, other.started)


def is_init() -> bool:
    """Return whether all visible processes belong to a container that ends with us.

    This is true for PID 1, and for a child of the small init of a container (``docker run --init``). It is
    false for a daemon that a host's PID 1 has adopted. It is also false in a container that sees the
    processes of the host (``--pid=host``).
    """
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return False  # /proc shows another pid namespace, whose pids mean nothing here
        if os.getpid() == 1:
            return True
        if os.getppid() != 1 or os.readlink("/proc/self/ns/pid") == _INITIAL_PID_NAMESPACE:
            return False
        if os.readlink("/proc/1/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
            return False
    except OSError:
        return False
    init = process(1)
    return init is not None and init.name in _MINI_INITS


def processes() -> dict[int, ProcessInfo]:
    """Return every live process by its pid; an empty dictionary if there is no ``/proc``."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return {}
    return {info.pid: info for info in map(process, pids) if info}


def process(pid: int) -> ProcessInfo | None:
    """Return a process; ``None`` for a zombie, a process that is gone, and a kernel thread."""
    head, _, tail = _content(f"/proc/{pid}/stat").rpartition(b")")  # a name may hold any byte, even ")"
    state, *fields = tail.split() or (b"X",)
    if state in {b"Z", b"X"} or int(fields[5]) & _KERNEL_THREAD:
        return None
    text = head.partition(b"(")[2].decode(errors="replace")
    name = "".join(character if character.isprintable() else "?" for character in text)
    return ProcessInfo(pid, name, int(fields[0]), int(fields[18]) / os.sysconf("SC_CLK_TCK"))


def ancestry(pid: int, table: Mapping[int, ProcessInfo]) -> set[int]:
    """Return the pids of all ancestors of a process."""
    ancestors: set[int] = set()
    while (info := table.get(pid)) and info.parent not in ancestors:
        pid = info.parent
        ancestors.add(pid)
    return ancestors


def ignores_term(pid: int) -> bool:
    """Return whether a process ignores TERM, as interactive shells do."""
    ignored = re.search(rb"^SigIgn:\s*([0-9a-f]+)$", _content(f"/proc/{pid}/status"), re.MULTILINE)
    return ignored is not None and bool(int(ignored[1], 16) >> (signal.SIGTERM - 1) & 1)


def is_wrapper(pid: int) -> bool:
    """Return whether a process looks like one that runs sessions; its record may be missing, or elsewhere."""
    return runs_session(_content(f"/proc/{pid}/cmdline"))


def runs_session(command_line: bytes) -> bool:
    """Return whether a command line is that of a session, or of a command that ends its sessions itself.

    Arguments:
        command_line: the words, with a NUL after each.

    """
    return _WRAPPER.match(command_line) is not None


def is_deletion(pid: int) -> bool:
    """Return whether a process deletes a removed worktree. A signal would leave the deletion half done."""
    return _DELETION.match(_content(f"/proc/{pid}/cmdline")) is not None


def registered(project: str, table: Mapping[int, ProcessInfo]) -> dict[int, str]:
    """Return the session of every process that a record of the project names, and that holds its lock.

    Arguments:
        project: the directory that the user named; the records are in it or above it.
        table: all processes, by pid.

    """
    give_up = time.monotonic() + _RECORDS_TIME
    sessions: dict[int, str] = {}
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
        directory = _directory(os.path.abspath(project))
        held = {
            (int(pid), int(inode)) for pid, inode in _LOCK.findall(_content("/proc/locks", _LARGEST_TABLE))
        }
        for name in os.listdir(directory):
            if time.monotonic() >= give_up:
                break
            record = _record(f"{directory}/{name}") if _RECORD.fullmatch(name) else {}
            pid, session = record.get("pid"), record.get("session")
            owner = table.get(pid) if isinstance(pid, int) else None
            if not owner or record.get("pid_namespace") != namespace:
                continue
            with suppress(OSError):
                lock = os.lstat(f"{directory}/{name.removesuffix('.json')}.lock")
                if owner.started != record.get("start_time") or (owner.pid, lock.st_ino) not in held:
                    continue
                fits = isinstance(session, str) and _SESSION.fullmatch(session)
                sessions[owner.pid] = str(session) if fits else ""
    return sessions


def hold_lock(project: str) -> bool:
    """Hold, until we exit, the lock that shows sweeps in other containers that this container is alive.

    A sweep in another container does not see the processes of this one. The free lock of a session proves
    that its owner is dead. The processes that the owner left may still run.

    Arguments:
        project: as in :func:`registered`.

    Returns:
        Whether we hold it; ``False`` until a session has made the directory for it.

    """
    run = os.path.dirname(_directory(os.path.abspath(project)))
    opened: list[int] = []
    try:
        number = re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))
        # Open each directory by itself: an agent can replace any of them with a symlink.
        for step in (os.path.dirname(os.path.dirname(run)), ".ralph", "run", "containers"):
            flags = os.O_RDONLY | os.O_DIRECTORY | (os.O_NOFOLLOW if opened else 0)
            opened.append(os.open(step, flags, dir_fd=opened[-1] if opened else None))
        owner = os.fstat(opened[-1])
        name, flags = f"{number}.lock", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            lock = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=opened[-1])
            os.fchown(lock, owner.st_uid, owner.st_gid)  # only our new file: an older one may not be ours
        except FileExistsError:
            lock = os.open(name, flags, dir_fd=opened[-1])
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            status = os.stat(name, dir_fd=opened[-1], follow_symlinks=False)
            is_ours = os.path.samestat(os.fstat(lock), status)  # a sweep may have removed it just before
        except OSError:
            is_ours = False
        if not is_ours:
            os.close(lock)
    except OSError:
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return is_ours


def _directory(project: str) -> str:
    above = project
    while not os.path.isdir(f"{above}/.ralph/run/agents") and above != os.path.dirname(above):
        above = os.path.dirname(above)
    return f"{above}/.ralph/run/agents"


def _record(path: str) -> dict[str, Any]:
    try:
        loaded = json.loads(_content(path, _LARGEST_RECORD))
    except (ValueError, RecursionError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _content(path: str, size: int = 4096) -> bytes:
    """Return the beginning of a regular file; nothing if it is gone, forbidden, a link or a pipe.

    A read of a file below ``/proc`` may return a part of what is left.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        content = b""
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            while len(content) < size and (part := os.read(descriptor, size - len(content))):
                content += part
    except OSError:
        return b""
    else:
        return content
    finally:
        os.close(descriptor)
