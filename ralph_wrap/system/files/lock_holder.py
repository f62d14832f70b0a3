"""Find the processes that hold a lock, so that a message can name them (``proc(5)``: locks, pid/fdinfo).

The kernel shows the processes of our pid namespace and of those below it. A holder elsewhere stays unknown.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import LockedError
from ralph_wrap.system import process_table
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.process_table import PROC
from ralph_wrap.system.text import plain, shortened

log = get_logger()

_LONGEST = 100  # characters of a command line
_BETWEEN = 5.0  # seconds between two looks at the holders


class LockHolder(NamedTuple):
    """A process that holds a lock.

    Attributes:
        pid: its number, as we see it.
        command: its command line, shortened.
        stopped: SIGSTOP or Ctrl-Z has stopped it.

    """

    pid: int
    command: str
    stopped: bool


class HeldLock(NamedTuple):
    """A lock that other processes hold.

    Attributes:
        path: the locked file or directory.
        holders: the processes that hold it; none if the kernel shows none of them to us.

    """

    path: Path
    holders: tuple[LockHolder, ...]

    def is_held_since(self, before: HeldLock | None) -> bool:
        """Return whether a process held the lock at an earlier look, too, or is stopped."""
        if any(holder.stopped for holder in self.holders):
            return True
        if before is None:
            return False
        earlier = {holder.pid for holder in before.holders}
        return not (earlier or self.holders) or any(holder.pid in earlier for holder in self.holders)

    @property
    def sentence(self) -> str:
        """What holds the lock."""
        if not self.holders:
            return (
                f"a process that is not visible here has locked {self.path}:"
                " in another container, or outside of this one"
            )
        names = ", ".join(
            f"{holder.pid} ({holder.command}{', which is stopped' if holder.stopped else ''})"
            for holder in self.holders
        )
        return f"process {names} has locked {self.path}"

    @property
    def hint(self) -> str:
        """What the user can do."""
        if not self.holders:
            return f"to find it, on the host as root: lslocks, or: fuser -v {shlex.quote(str(self.path))}"
        pids = " ".join(str(holder.pid) for holder in self.holders)
        if any(holder.stopped for holder in self.holders):
            return f"to let it go on: kill -CONT {pids}; to end it: kill -KILL {pids}"
        return f"if it is stuck, end it: kill {pids}"

    @property
    def facts(self) -> dict[str, object]:
        """The same for programs."""
        return {"lock": os.fspath(self.path), "holders": [holder._asdict() for holder in self.holders]}


def held_lock(path: Path) -> HeldLock:
    """Return which processes hold the lock on a file or a directory."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return HeldLock(path, ())
    try:
        key = _key(descriptor)
    finally:
        os.close(descriptor)
    pids = {pid for pid in _holders(key) if pid != os.getpid()}
    return HeldLock(path, tuple(_describe(pid) for pid in sorted(pids)))


def file_hint(path: Path) -> str:
    """Return what the user can do about a ``*.lock`` file of git, which is no lock of the kernel."""
    writers = [pid for pid in process_table.pids() if _has_open(pid, path)]
    if writers:
        held = HeldLock(path, tuple(map(_describe, writers)))
        return f"{held.sentence}; {held.hint}"
    return f"no process that we see has this file open; if no git is at work: rm {shlex.quote(str(path))}"


class LockWait:
    """The wait for a lock that another process has held for some seconds.

    Arguments:
        path: the locked file or directory.
        patience: seconds until the wait ends, if the holders do nothing meanwhile.

    """

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._next_look = 0.0
        self._deadline = 0.0
        self._seen: tuple[object, ...] = ()
        self._before: HeldLock | None = None
        self._is_named = False

    def look(self) -> None:
        """Name a holder that stays, once, and end a wait for holders that do nothing.

        Sessions that take turns are no reason for a message, however long all of them take.

        Raises:
            LockedError: they did nothing for too long.

        """
        now = time.monotonic()
        if now < min(self._next_look, self._deadline):
            return
        lock = held_lock(self._path)
        if not self._is_named and self._patience > 0 and lock.is_held_since(self._before):
            self._is_named = True
            log.warning("lock.waiting", f"waiting: {lock.sentence}", lock.hint, **lock.facts)
        self._before = lock
        if (seen := _progress(lock)) != self._seen:
            self._seen = seen
            self._deadline = now + self._patience
        if now >= self._deadline:
            raise LockedError(lock.sentence, lock.hint, self._path)
        self._next_look = now + _BETWEEN


def _progress(lock: HeldLock) -> tuple[object, ...]:
    """Return a value that changes when other processes get the lock, or when a holder works."""
    running = process_table.descendants([holder.pid for holder in lock.holders if not holder.stopped])
    return lock.holders, *(process_table.processor_ticks(pid) for pid in sorted(running))


def _key(descriptor: int) -> bytes:
    """Return device and inode of a file as the kernel prints them for locks: ``fe:00:761909``.

    ``stat(2)`` of btrfs and of overlayfs shows another device.
    """
    status = os.fstat(descriptor)
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    facts = _facts(PROC / "self" / "fdinfo" / str(descriptor))
    with contextlib.suppress(OSError):
        for row in (PROC / "self" / "mountinfo").read_text(errors="replace").splitlines():
            mount, _, shown = row.split(" ", 3)[:3]
            if mount == facts.get("mnt_id"):
                device = shown
    major, _, minor = device.partition(":")
    return f"{int(major):02x}:{int(minor):02x}:{facts.get('ino', status.st_ino)}".encode()


def _facts(path: Path) -> dict[str, str]:
    try:
        rows = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (row.partition(":") for row in rows)
    return {name: text.strip() for name, _, text in pairs}


def _holders(key: bytes) -> Iterator[int]:
    """Yield the process that took the lock, and each process that has inherited it."""
    with contextlib.suppress(OSError):
        yield from filter(process_table.is_program, _in_rows((PROC / "locks").read_bytes(), key))
    for pid in process_table.pids():
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            for entry in (PROC / str(pid) / "fdinfo").iterdir():
                with contextlib.suppress(OSError):
                    content = entry.read_bytes()
                    if b"\nlock:" in content and [*_in_rows(content, key)]:
                        yield pid


def _in_rows(rows: bytes, key: bytes) -> Iterator[int]:
    for row in rows.splitlines():
        fields = row.removeprefix(b"lock:").split()
        if fields[1:2] == [b"FLOCK"] and key in fields:  # a process that waits has "->" there
            yield int(fields[4])


def _has_open(pid: int, path: Path) -> bool:
    try:
        return any(entry.readlink() == path for entry in (PROC / str(pid) / "fd").iterdir())
    except OSError:
        return False


def _describe(pid: int) -> LockHolder:
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        words = []
    command = plain(" ".join(words))
    return LockHolder(pid, shortened(command, _LONGEST) or "ended", process_table.is_stopped(pid))
