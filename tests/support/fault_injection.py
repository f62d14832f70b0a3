"""Run ralph-wrap, and have something happen to it at a chosen point of its life.

There is a point right before each change of the file system and each start of a process. Python's audit
events report these (https://docs.python.org/3/library/audit_events.html). There is one right after each of
our own commands, and right before and after each logged event. If an operation is to fail, only operations
that can fail count, with each write to a file and each ``fsync``. If git is to be killed, each start of git
counts. Points are counted from 1.

Usage: ``fault_injection.py FILE FAULT N ARGUMENT…`` or ``fault_injection.py serve``. Each point is appended
to FILE by name. At N the process is killed (``kill``), or the operation fails (``ENOSPC``, ``EIO``, …), or
nothing happens (``count``). With ``git-…`` git gets its fault by its environment (``git_shim.deadly_git``).
``watch`` counts, and writes to FILE.states what a kill at each point would leave. It is a hash of each file
beside FILE and below ``HOME``, and of the child processes.

``serve`` loads the program once and forks for each command, see ``fork_server.py``. Its stdin is a socket.
Each packet is a JSON object (arguments, cwd, environ, fault) with four descriptors: stdin, stdout, stderr,
and a pipe for pid and status.
"""

from __future__ import annotations

import atexit
import errno
import functools
import gc
import hashlib
import itertools
import json
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import typer.main

import ralph_wrap
from ralph_wrap.__main__ import main
from ralph_wrap.interfaces.cli.app import all_loaded
from ralph_wrap.system import process
from ralph_wrap.system.log import Log
from ralph_wrap.worktree.trash import deletion

_CHANGES = {
    *("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"),
    *("os.chmod", "os.chown", "os.utime", "fcntl.flock", "subprocess.Popen", "shutil.rmtree"),
}
_NOT_FORKED = ("ralph_wrap.__main__", "ralph_wrap.interfaces.mcp", "ralph_wrap.interfaces.web")
_WARMING = (
    ("sweep", "--dry-run"),
    ("run", "--no-such-option"),
    ("ps", "--help"),
)  # change nothing, and load what others load
_LARGEST = 1 << 18  # bytes of a request
_WIDTH = 41  # bytes of a line of FILE.states
_write, _fsync = os.write, os.fsync


class Points:
    """Counts points, and does what was asked for at one of them."""

    def __init__(self, path: str, fault: str, number: int) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._fault = fault
        self._number = number
        self._numbers = itertools.count(1)
        self._path, self._directory = path, os.path.dirname(path)  # noqa: PTH120
        states = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._states = os.open(f"{path}.states", states, 0o666) if fault == "watch" else None
        self.fails = fault in errno.errorcode.values()
        self.of_git = fault.startswith("git-")

    def reach(self, name: str, *, can_fail: bool) -> None:
        """Be at a point."""
        if self.of_git or (self.fails and not can_fail):
            return
        if not self._is_chosen(name):
            return
        if self._fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fails:
            number = getattr(errno, self._fault)
            raise OSError(number, os.strerror(number), name)

    def start_git(self, words: str) -> dict[str, str]:
        """Be at a start of git, and return what is added to its environment."""
        return {"DEADLY": self._fault} if self.of_git and self._is_chosen(words) else {}

    def _is_chosen(self, name: str) -> bool:
        reached = next(self._numbers)  # two threads can be at a point at once, and each has its own number
        _write(self._descriptor, f"{name}\n".encode(errors="replace"))
        if self._states is not None:
            os.pwrite(self._states, f"{self._state()}\n".encode(), (reached - 1) * _WIDTH)
        return reached == self._number

    def _state(self) -> str:
        """Return what a kill would leave, as a hash of all files and of the children that run on."""
        disk = [_entries(self._directory, apart=self._path), _entries(os.environ["HOME"], apart=self._path)]
        return hashlib.sha1(repr((disk, _children())).encode(), usedforsecurity=False).hexdigest()

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Hear of everything that Python does."""
        if event == "open":
            path, _, flags = arguments
            if (
                isinstance(path, str)
                and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
                and path != os.devnull
            ):
                self.reach(f"open {path}", can_fail=True)
        elif event == "subprocess.Popen":
            words = [os.fsdecode(word) for word in arguments[1]]
            if words[0] == "git":  # its command follows "--no-pager" and pairs of "-c" and a value
                words = words[next(at for at in range(2, len(words), 2) if words[at] != "-c") :]
            self.reach(f"start {' '.join(words)}", can_fail=False)
        elif event in _CHANGES:
            self.reach(f"{event} {arguments[0]}", can_fail=event != "fcntl.flock")


def inject(points: Points) -> None:
    """Have every point of this process go through *points*."""
    take, wait, start = Log.take, process.RunningCommand.wait, process.RunningCommand.__init__

    def taking(self: Log, event: Mapping[str, Any]) -> None:
        points.reach(f"before {event['event']}", can_fail=False)
        take(self, event)
        points.reach(f"after {event['event']}", can_fail=False)

    def waiting(self: process.RunningCommand, timeout: float | None = None) -> process.CompletedCommand:
        completed = wait(self, timeout)
        points.reach("a command has ended", can_fail=False)
        return completed

    def starting(self: process.RunningCommand, argv: Any, *, env: Any, **options: Any) -> None:
        # What comes before the sub-command is the same for all of them, but for pairs of -c.
        words = " ".join(map(os.fsdecode, argv))
        start(self, argv, env={**env, **points.start_git(words)}, **options)

    def writing(descriptor: int, content: Any, /) -> int:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            points.reach("write", can_fail=True)
        return _write(descriptor, content)

    def syncing(descriptor: int) -> None:
        points.reach("fsync", can_fail=True)
        _fsync(descriptor)

    Log.take = taking  # type: ignore[method-assign]
    process.RunningCommand.wait = waiting  # type: ignore[method-assign]
    process.RunningCommand.__init__ = starting  # type: ignore[method-assign]
    if points.fails:
        os.write = writing
        os.fsync = syncing  # type: ignore[assignment]
    _inject_into_deletions(points)
    sys.addaudithook(points.audit)


def _inject_into_deletions(points: Points) -> None:
    start = deletion.start

    def starting(*arguments: Any) -> None:
        points.reach("start a deletion", can_fail=True)
        start(*arguments)

    deletion.start = starting  # type: ignore[assignment]


def _entries(directory: str, *, apart: str) -> list[object]:
    """Return everything below a directory that changes when a file does, but for files of ours."""
    found: list[object] = []
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.path.startswith(apart):
                continue
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                found += [entry.name, status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns]
            # Git changes no object, and a new one is a change of its directory.
            if entry.is_dir(follow_symlinks=False) and not directory.endswith("/objects"):
                found.append(_entries(entry.path, apart=apart))
    return found


def _children() -> list[str]:
    """Return the pids of the processes that this one has started and that have not ended."""
    found: list[str] = []
    for task in os.listdir("/proc/self/task"):  # noqa: PTH208
        with suppress(FileNotFoundError), open(f"/proc/self/task/{task}/children") as children:  # noqa: PTH123
            found += children.read().split()
    return sorted(found)


def _serve() -> None:
    """Fork for each command, and tell its pid at its start, and its status at its end."""
    for module in walk_packages(ralph_wrap.__path__, "ralph_wrap."):
        if not module.name.startswith(_NOT_FORKED):
            import_module(module.name)
    _warm_up()
    gc.freeze()  # or each fork copies what it only looks through
    commands: dict[int, tuple[int, int]] = {}  # pid and pipe, by the descriptor of the process
    connection = socket.socket(fileno=0)
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != connection.fileno():
                poll.unregister(ready)
                _tell_status(ready, *commands.pop(ready))
                continue
            request, descriptors, *_ = socket.recv_fds(connection, _LARGEST, 4)
            if not request:
                os._exit(0)
            *files, pipe = descriptors
            child = os.fork()
            if not child:
                for other, (_, another) in commands.items():
                    os.close(other)
                    os.close(another)
                connection.close()
                os.close(pipe)
                _become(json.loads(request), files)
                return
            for descriptor in files:
                os.close(descriptor)
            os.write(pipe, b"%d\n" % child)
            ended = os.pidfd_open(child)
            commands[ended] = child, pipe
            poll.register(ended, select.POLLIN)


def _tell_status(ended: int, pid: int, pipe: int) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(BrokenPipeError):  # the test has not waited for it
        os.write(pipe, b"%d\n" % status)
    os.close(pipe)
    os.close(ended)


def _become(asked: dict[str, Any], files: list[int]) -> None:
    """Have what a started command would have."""
    for number, descriptor in enumerate(files):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    time.tzset()
    sys.argv = ["ralph-wrap", *asked["arguments"]]
    if asked["fault"]:
        points, fault, number = asked["fault"]
        inject(Points(points, fault, int(number)))


def _end_a_fork(run: Callable[[], None]) -> None:
    """Run a command, and end as Python does, but free nothing: all modules are loaded, which takes 50 ms."""
    try:
        run()
        status: object = 0
    except SystemExit as ended:
        status = ended.code
    if not isinstance(status, int | None):
        raise SystemExit(status)
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 -- it waits for other threads
    atexit._run_exitfuncs()  # noqa: SLF001
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status or 0)


def _warm_up() -> None:
    typer.main.get_command = functools.cache(typer.main.get_command)  # they are the same for each command
    all_loaded()
    kept = os.dup(1), os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    for arguments in _WARMING:
        sys.argv = ["ralph-wrap", *arguments]
        with suppress(SystemExit):
            main()
    sys.stdout.flush()
    for number, descriptor in enumerate(kept, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)


if __name__ == "__main__":
    if sys.argv[1:] != ["serve"]:
        where, what, at, *words = sys.argv[1:]
        sys.argv = ["ralph-wrap", *words]
        inject(Points(where, what, int(at)))
        main()
    _serve()
    _end_a_fork(main)
