"""What runs in a test's sealed world, looked at from outside."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from ralph_wrap.system import delete_tree
from ralph_wrap.system.process import ENDING

STUBBORN = os.fspath(Path(__file__).with_name("stubborn_agent.py"))
"""See there; run by this Python."""


def hear_signals() -> None:
    """Let this process, and all that it starts, hear the signals that it was started to ignore.

    A script that starts the tests with ``&`` makes them ignore SIGINT and SIGQUIT, and ``nohup`` SIGHUP.
    Children inherit that: Ctrl-C would not reach any program that a test starts.
    """
    for number in (*ENDING, signal.SIGTSTP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def running(home: Path) -> dict[int, str]:
    """Return pid and command line of every process of a test: whose ``HOME`` was its sealed one."""
    mark = f"HOME={home}".encode()
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 -- hundreds: no objects are made of them
        with contextlib.suppress(OSError):
            if mark in _content(pid, "environ").split(b"\0") and (command := _content(pid, "cmdline")):
                # An empty command line: it ends in this very moment.
                found[int(pid)] = command.decode(errors="replace").replace("\0", " ").strip()
    found.pop(os.getpid(), None)
    return found


def _content(pid: str, name: str) -> bytes:
    descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(descriptor, 1 << 17), b""))
    finally:
        os.close(descriptor)


def left(home: Path) -> dict[int, str]:
    """Return what runs once a session has ended; the deletion of its worktree may go on."""
    return {pid: command for pid, command in running(home).items() if not _is_deletion(command)}


def is_deleting(home: Path) -> bool:
    """Return whether worktrees are being deleted in the background."""
    return any(map(_is_deletion, running(home).values()))


def _is_deletion(command: str) -> bool:
    return f" {delete_tree.__file__} " in command


def end_all(home: Path) -> None:
    """Kill whatever a test has left, and wait until nothing is."""
    while remaining := running(home):
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def status_of(pid: int, field: str) -> int:
    """Return a number from ``/proc/<pid>/status`` (``proc(5)``), such as ``VmRSS`` in kB."""
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith(f"{field}:"))


def state_of(pid: int) -> str:
    """Return the state of a process, such as ``T`` for a stopped one (``proc(5)``: stat, field 3)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
