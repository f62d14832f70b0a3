# ruff: noqa: PTH100, PTH112, PTH115, PTH120, PTH208 -- pathlib would be a tenth of this process's memory
"""Who is in this container, and who of them is a session; told from ``/proc`` (``proc(5)``) and records.

Processes come and go while they are looked at, and an agent can write records: nothing here raises for what
it finds, waits for anybody, or believes what the process itself does not confirm.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_MINI_INITS = {"docker-init", "podman-init", "catatonit", "dumb-init", "tini", "tini-static"}
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, <linux/proc_ns.h>: that of the host
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD, <linux/sched.h>; the flags are field 9 of stat

_RECORD = re.compile(r"[0-9a-f]{4}\.json")
_SESSION = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}")
_LARGEST_RECORD = 1 << 16  # bytes; a real one has less than 1,000
_RECORDS_TIME = 0.5  # seconds for all of them: a project full of large ones must not keep us from telling

# Options of Python that take a word are told apart, so that no row of words can be read in two ways.
_WRAPPER = re.compile(
    rb"(?:(?:[^\0]*/)?python[^\0/]*\0(?:-[XW]\0[^\0]*\0|-(?![XW]\0)[^\0]*\0)*"
    rb"(?:(?<!-[XW]\0)-[^\0]*m\0ralph_wrap|(?:[^\0-][^\0]*/)?ralph-wrap)"
    rb"|(?:[^\0]*/)?ralph-wrap)\0(?:run|spawn)\0"
)


# Of a worktree that is saved and removed: the program ``delete_tree``.
_DELETION = re.compile(rb"[^\0]+\0-I\0-S\0[^\0]*/delete_tree\.py\0")


class Process(NamedTuple):
    """A process of this pid namespace, told apart from every other one.

    Attributes:
        pid: its number.
        name: of its program, for people.
        parent: the pid of its parent; 0 if that is not in this namespace, as with ``docker exec``.
        started: in seconds since the boot, as in the record of a session.

    """

    pid: int
    name: str
    parent: int
    started: float

    def is_same(self, other: Process | None) -> bool:
        """Tell whether this is the same process; its name and parent may change."""
        return other is not None and (self.pid, self.started) == (other.pid, other.started)


def is_init() -> bool:
    """Tell whether all processes that are seen belong to a container that ends with us.

    So it is for PID 1, and for a child of the small init of a container (``docker run --init``). It is not
    for a daemon that a host's PID 1 has adopted, nor in a container that sees the host's (``--pid=host``).
    """
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return False  # of another pid namespace: its numbers mean nothing here
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


def processes() -> dict[int, Process]:
    """Return every process that lives, by its pid; none where there is no ``/proc``."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return {}
    return {found.pid: found for found in map(process, pids) if found}


def process(pid: int) -> Process | None:
    """Return a process; ``None`` for one that has ended, reaped or not, and for a thread of the kernel."""
    head, _, tail = _content(f"/proc/{pid}/stat").rpartition(b")")  # a name may hold anything
    state, *fields = tail.split() or (b"X",)
    if state in {b"Z", b"X"} or int(fields[5]) & _KERNEL_THREAD:
        return None
    text = head.partition(b"(")[2].decode(errors="replace")
    name = "".join(character if character.isprintable() else "?" for character in text)
    return Process(pid, name, int(fields[0]), int(fields[18]) / os.sysconf("SC_CLK_TCK"))


def ancestry(pid: int, table: Mapping[int, Process]) -> set[int]:
    """Return the pids of the parent of a process, of its parent, and so on."""
    found: set[int] = set()
    while (here := table.get(pid)) and here.parent not in found:
        pid = here.parent
        found.add(pid)
    return found


def ignores_term(pid: int) -> bool:
    """Tell whether a process ignores TERM, as interactive shells do."""
    ignored = re.search(rb"^SigIgn:\s*([0-9a-f]+)$", _content(f"/proc/{pid}/status"), re.MULTILINE)
    return ignored is not None and bool(int(ignored[1], 16) >> (signal.SIGTERM - 1) & 1)


def is_wrapper(pid: int) -> bool:
    """Tell whether a process looks like a session, whose record may be elsewhere or not yet there."""
    return runs_session(_content(f"/proc/{pid}/cmdline"))


def runs_session(command_line: bytes) -> bool:
    """Tell whether a command line is that of a session.

    Arguments:
        command_line: the words, each ended by NUL.

    """
    return _WRAPPER.match(command_line) is not None


def is_deletion(pid: int) -> bool:
    """Tell whether a process deletes what a session no longer needs. A signal would only cut it short."""
    return _DELETION.match(_content(f"/proc/{pid}/cmdline")) is not None


def registered(project: str, table: Mapping[int, Process]) -> dict[int, str]:
    """Return the session of every process that a record of the project names and that it fits.

    Arguments:
        project: the directory that was named; the records are in it or above it.
        table: the processes.

    """
    give_up = time.monotonic() + _RECORDS_TIME
    found: dict[int, str] = {}
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
        directory = _directory(os.path.abspath(project))
        for name in os.listdir(directory):
            if time.monotonic() >= give_up:
                break
            record = _record(f"{directory}/{name}") if _RECORD.fullmatch(name) else {}
            pid, session = record.get("pid"), record.get("session")
            owner = table.get(pid) if isinstance(pid, int) else None
            if not owner or record.get("pid_namespace") != namespace:
                continue
            if owner.started == record.get("start_time"):
                fits = isinstance(session, str) and _SESSION.fullmatch(session)
                found[owner.pid] = str(session) if fits else ""
    return found


def hold_lock(project: str) -> bool:
    """Hold, until we end, the lock that tells a sweep elsewhere that this container lives.

    A sweep in another container does not see what runs here. That a session's own lock is free proves its
    owner dead, not the processes that it has left.

    Arguments:
        project: as in :func:`registered`.

    Returns:
        Whether it is held; not where no session has made the directory for it yet.

    """
    run = os.path.dirname(_directory(os.path.abspath(project)))
    opened: list[int] = []
    try:
        number = re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))
        # Step by step: an agent can put a symlink in the place of each.
        for step in (os.path.dirname(os.path.dirname(run)), ".ralph", "run", "containers"):
            flags = os.O_RDONLY | os.O_DIRECTORY | (os.O_NOFOLLOW if opened else 0)
            opened.append(os.open(step, flags, dir_fd=opened[-1] if opened else None))
        owner = os.fstat(opened[-1])
        name, flags = f"{number}.lock", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            lock = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=opened[-1])
            os.fchown(lock, owner.st_uid, owner.st_gid)  # a file that was there may be anybody's
        except FileExistsError:
            lock = os.open(name, flags, dir_fd=opened[-1])
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = os.stat(name, dir_fd=opened[-1], follow_symlinks=False)
            held = os.path.samestat(os.fstat(lock), there)  # a sweep may have removed it just before
        except OSError:
            held = False
        if not held:
            os.close(lock)
    except OSError:
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return held


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
    """Return the beginning of a regular file; nothing of what is gone, forbidden, a link, a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, size) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)
