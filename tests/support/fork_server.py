"""The program, loaded once and forked for each command, which may meet a fault (see ``fault_injection.py``).

A start of Python with the imports of the program takes four fifths of the time that a short command takes. A
fork has a pid, pipes, an environment and a working directory of its own, as a started program has. It has
another command line in ``/proc``, and ``/proc/PID/environ`` shows the environment of the server.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FAULTY = os.fspath(Path(__file__).with_name("fault_injection.py"))
"""See there."""

_COMPLETION = ("_RALPH_WRAP_COMPLETE", "_TYPER_COMPLETE_ARGS")

LARGEST = 1 << 17
"""Bytes of a request."""


class Ended(NamedTuple):
    """A command that has ended."""

    pid: int
    status: int
    stdout: bytes
    stderr: bytes


class ForkServer:
    """Runs commands of ralph-wrap in forks of a process that has loaded it."""

    def __init__(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "RALPH_"))}
        # No test takes the server for a process of its own.
        environ = {**kept, "HOME": os.devnull, "PYTHONWARNINGS": "error"}
        self._fixed = _fixed_at_the_start(environ)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = (sys.executable, FAULTY, "serve")
            self._process = subprocess.Popen(words, stdin=theirs.fileno(), env=environ, cwd="/")

    def can_run(self, arguments: Sequence[str], environ: Mapping[str, str]) -> bool:
        """Return whether a fork does what the program does.

        It is not PID 1, Python starts the same way, and no shell asks for completions: Typer takes the name
        of the program from the command line of the process.
        """
        if [*arguments[:1]] == ["init"] or any(name in environ for name in _COMPLETION):
            return False
        size = len(json.dumps([arguments, dict(environ)]))
        return _fixed_at_the_start(environ) == self._fixed and size < LARGEST

    def run(
        self,
        *arguments: str,
        cwd: Path,
        environ: Mapping[str, str],
        patience: float,
        fault: tuple[Path, str, int] | None = None,
    ) -> Ended:
        """Run a command to its end.

        Arguments:
            arguments: of ralph-wrap.
            cwd: where.
            environ: its environment.
            patience: seconds until it is killed.
            fault: a file to which the points that it reaches are appended, what happens, and at which point;
                0 is never.

        """
        asked = {
            "arguments": arguments,
            "cwd": os.fspath(cwd),
            "environ": dict(environ),
            "fault": fault and (os.fspath(fault[0]), *fault[1:]),
        }
        reading, writing = zip(*(os.pipe() for _ in range(3)), strict=True)
        try:
            socket.send_fds(self._socket, [json.dumps(asked).encode()], writing)
        finally:
            for descriptor in writing:
                os.close(descriptor)
        stdout, stderr, ended = _read_all(reading, arguments, patience)
        pid, status = map(int, ended.split())
        return Ended(pid, status, stdout, stderr)

    def close(self) -> None:
        """End the server."""
        self._socket.close()
        self._process.wait()


@cache
def server() -> ForkServer:
    """Return the server of this process, which ends with it."""
    started = ForkServer()
    atexit.register(started.close)
    return started


def _fixed_at_the_start(environ: Mapping[str, str]) -> tuple[Any, ...]:
    """Return what Python reads at its start only, and what a process has from its parent."""
    read = {name: value for name, value in environ.items() if name.startswith(("PYTHON", "LC_", "LANG"))}
    return read, resource.getrlimit(resource.RLIMIT_NOFILE)


def _read_all(descriptors: Sequence[int], words: Sequence[str], patience: float) -> list[bytes]:
    """Read each pipe to its end; the last one tells the pid first."""
    content = dict.fromkeys(descriptors, b"")
    deadline = time.monotonic() + patience
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                os.kill(int(content[descriptors[-1]].split()[0]), signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(words), patience)
            for key, _ in ready:
                if read := os.read(key.fd, 1 << 16):
                    content[key.fd] += read
                else:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return [content[descriptor] for descriptor in descriptors]
