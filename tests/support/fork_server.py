"""The program, loaded once and forked for each command, which may meet a fault (see ``fault_injection.py``).

A start of Python with the imports of the program takes four fifths of the time that a short command takes. A
fork has a pid, pipes, an environment and a working directory of its own, as a started program has. It has
another command line in ``/proc``, and ``/proc/PID/environ`` shows the environment of the server.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import resource
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FAULTY = os.fspath(Path(__file__).with_name("fault_injection.py"))
"""See there."""

LARGEST = 1 << 17
"""Bytes of a request."""


class Ended(NamedTuple):
    """A command that has ended."""

    pid: int
    status: int
    stdout: bytes
    stderr: bytes


class ForkedCommand:
    """A command that runs in a fork, with what tests use of :class:`subprocess.Popen`.

    Arguments:
        words: of its command line.
        status_pipe: from which its pid is read, and its status once it has ended.
        stdout: a pipe; ``None`` if its standard output goes elsewhere.
        stderr: the same for its standard error.

    """

    def __init__(
        self, words: Sequence[str], status_pipe: int, stdout: int | None, stderr: int | None
    ) -> None:
        self.args = words
        self.stdin: IO[bytes] | None = None
        self.stdout = None if stdout is None else os.fdopen(stdout, "rb")
        self.stderr = None if stderr is None else os.fdopen(stderr, "rb")
        self.returncode: int | None = None
        self._status = os.fdopen(status_pipe, "rb")
        self.pid = int(self._status.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self.wait()

    def poll(self) -> int | None:
        """Return its status if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return its status."""
        if self.returncode is None:
            if timeout is not None and not select.select([self._status], [], [], max(0.0, timeout))[0]:
                raise subprocess.TimeoutExpired(list(self.args), timeout)
            with self._status:
                self.returncode = int(self._status.readline())
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Read to the end what it prints, wait for its end, and return both."""
        deadline = None if timeout is None else time.monotonic() + timeout
        content = {pipe: b"" for pipe in (self.stdout, self.stderr) if pipe}
        with selectors.DefaultSelector() as selector:
            for pipe in content:
                selector.register(pipe, selectors.EVENT_READ, pipe)
            while selector.get_map():
                ready = selector.select(_remaining(deadline))
                if not ready:
                    raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
                for key, _ in ready:
                    if read := os.read(key.fd, 1 << 16):
                        content[key.data] += read
                    else:
                        selector.unregister(key.fd)
        self.wait(_remaining(deadline))
        self._close()
        printed, errors = (content[pipe] if pipe else b"" for pipe in (self.stdout, self.stderr))
        return printed, errors

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def _close(self) -> None:
        for pipe in (self.stdout, self.stderr):
            if pipe:
                pipe.close()


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

    @property
    def pid(self) -> int:
        """Of the server, which waits for all commands that it runs."""
        return self._process.pid

    def can_run(self, arguments: Sequence[str], environ: Mapping[str, str]) -> bool:
        """Return whether a fork does what the program does.

        It is not PID 1, and Python starts the same way.
        """
        if [*arguments[:1]] == ["init"]:
            return False
        size = len(json.dumps([arguments, dict(environ)]))
        return _fixed_at_the_start(environ) == self._fixed and size < LARGEST

    def start(
        self,
        *arguments: str,
        cwd: Path,
        environ: Mapping[str, str],
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        fault: tuple[Path, str, int] | None = None,
    ) -> ForkedCommand:
        """Start a command.

        Arguments:
            arguments: of ralph-wrap.
            cwd: where.
            environ: its environment.
            stdin: nothing, or a file.
            stdout: nothing, a file, or a pipe.
            stderr: the same.
            fault: a file to which the points that it reaches are appended, what happens, and at which point;
                0 is never.

        """
        asked = {
            "arguments": arguments,
            "cwd": os.fspath(cwd),
            "environ": dict(environ),
            "fault": fault and (os.fspath(fault[0]), *fault[1:]),
        }
        with contextlib.ExitStack() as sent:
            status_pipe = _given(subprocess.PIPE, sent)
            files = [_given(file, sent) for file in (stdin, stdout, stderr)]
            theirs = [file.theirs for file in (*files, status_pipe)]
            socket.send_fds(self._socket, [json.dumps(asked).encode()], theirs)
        assert status_pipe.ours is not None
        return ForkedCommand(("ralph-wrap", *arguments), status_pipe.ours, files[1].ours, files[2].ours)

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
            fault: see :meth:`start`.

        """
        with self.start(*arguments, cwd=cwd, environ=environ, fault=fault) as command:
            try:
                stdout, stderr = command.communicate(patience)
            finally:
                command.kill()
        return Ended(command.pid, command.wait(), stdout, stderr)

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


class _Given(NamedTuple):
    """A file of a command, and our end of it if it is a pipe."""

    theirs: int
    ours: int | None


def _given(file: int | IO[bytes], sent: contextlib.ExitStack) -> _Given:
    """Return what a fork gets for a file.

    Arguments:
        file: as :class:`subprocess.Popen` takes it; a pipe is one that the fork writes to.
        sent: closes what we do not need any more.

    """
    if not isinstance(file, int):
        return _Given(file.fileno(), None)
    if file not in {subprocess.PIPE, subprocess.DEVNULL}:
        return _Given(file, None)
    if file == subprocess.PIPE:
        ours, theirs = os.pipe()
        given = _Given(theirs, ours)
    else:
        given = _Given(os.open(os.devnull, os.O_RDWR), None)
    sent.callback(os.close, given.theirs)
    return given


def _remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
