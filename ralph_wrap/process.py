"""Children: our own short commands, the agent's process group, and whatever the agent leaves behind.

Three rules, each from a measured failure:

- Our own commands run in a process group of their own, so that Ctrl-C, which the terminal sends to its
  foreground group, cannot kill git in the middle of a save.
- Nothing here waits with ``waitpid(-1)``: it would steal the exit status of a child that somebody else
  waits for, who then reads 0. Adopted orphans are reaped by pid.
- "Gone" means reaped. A zombie answers ``kill(pid, 0)`` and counts as ended only because we reap it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>, prctl(2)
UNKILLABLE_AFTER = 10.0
"""Seconds after SIGKILL; what is there by then hangs in the kernel or belongs to another user."""
_OWN = "RALPH_WRAP_OWN_COMMAND"  # in the environment of our own commands
_TICK = 0.01  # seconds between looks at a group that was told to end; nothing is told while an agent works


class Completed(NamedTuple):
    """What a finished command left: its exit status (negative: the signal), output and errors."""

    status: int
    stdout: bytes
    stderr: bytes


class Ended(NamedTuple):
    """How many processes were told to end, and the pids of those that outlived even SIGKILL."""

    told: int
    survivors: tuple[int, ...]


def anonymous_file() -> int:
    """Return a descriptor of a new file without a name, in memory where the system can do that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ralph-wrap", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Running:
    """A command of ours that runs while we do something else; its output is collected in memory.

    Arguments:
        argv: the command.
        cwd: its working directory.
        env: its whole environment.
        stdin: what it reads; ``None`` is nothing.

    Raises:
        OSError: it could not be executed.

    """

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: bytes | None = None,
    ) -> None:
        self._stdin = stdin
        self._completed: Completed | None = None
        self._errors = anonymous_file()  # a file, not a pipe: what is in it can be read while it runs
        try:
            self._popen = subprocess.Popen(
                argv,
                cwd=cwd,
                env={**env, _OWN: "1"},
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                process_group=0,
            )
        except BaseException:
            os.close(self._errors)
            raise

    def wait(self, timeout: float | None = None) -> Completed:
        """Wait for the end.

        Arguments:
            timeout: seconds; ``None`` waits as long as it takes. May be called again after a time-out.

        Raises:
            TimeoutError: it is still running.

        """
        if self._completed is None:
            try:
                stdout, _ = self._popen.communicate(self._stdin, timeout)
            except subprocess.TimeoutExpired as error:
                raise TimeoutError(str(error)) from None
            self._completed = Completed(self._popen.returncode, stdout, self._said())
        return self._completed

    def ended(self, timeout: float) -> bool:
        """Wait for the end for so many seconds, and tell whether it came."""
        try:
            self.wait(timeout)
        except TimeoutError:
            return False
        return True

    def latest(self) -> str:
        """Return the last line on its standard error so far; a carriage return ends one too."""
        lines = re.split(r"[\r\n]+", self._said().decode(errors="replace").strip())
        return lines[-1]

    def end(self) -> None:
        """Kill its process group if it still runs, and reap it."""
        if self._completed is None:
            if self._popen.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._popen.pid, signal.SIGKILL)
            self.wait()

    def _said(self) -> bytes:
        return os.pread(self._errors, os.fstat(self._errors).st_size, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        os.close(self._errors)


def detach(argv: Sequence[str | os.PathLike[str]], *, cwd: Path, env: Mapping[str, str]) -> None:
    """Start a command that outlives us and that nobody waits for.

    Raises:
        OSError: it could not be started.

    """
    popen = subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    popen.returncode = 0  # or its __del__ warns about a child still running, which is what was asked for


@dataclass(frozen=True, slots=True)
class Streams:
    """The descriptors that become an agent's standard streams; ``None`` inherits ours."""

    stdin: int | None
    stdout: int | None
    stderr: int | None


class Group:
    """An agent: a process in a process group of its own, and that group.

    Arguments:
        argv: the command; ``argv[0]`` is looked up on the ``PATH`` of *env* if it has no slash.
        cwd: its working directory.
        env: its whole environment.
        streams: its standard streams.
        terminal: descriptor of the controlling terminal whose foreground group it becomes.

    Raises:
        OSError: it could not be executed.

    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        streams: Streams,
        terminal: int | None = None,
    ) -> None:
        def take_terminal() -> None:
            # In the child, before exec: from the parent there would be a moment in which the agent
            # already reads from a terminal that is not yet its own, and is stopped by SIGTTIN.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
            with contextlib.suppress(OSError):  # its window is closed: the agent will see that itself
                os.tcsetpgrp(terminal or 0, os.getpid())
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTTOU})

        self._popen = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=streams.stdin,
            stdout=streams.stdout,
            stderr=streams.stderr,
            process_group=0,
            preexec_fn=None if terminal is None else take_terminal,  # noqa: PLW1509 -- we start no threads
        )
        self.pid = self._popen.pid
        # Readable once it has ended (pidfd_open(2), Linux 5.3): the only word of that in a thread, where
        # no SIGCHLD is seen.
        self.pidfd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else -1

    def poll(self) -> int | None:
        """Return the exit status as a shell counts it (128+n for signal n), ``None`` while it runs."""
        status = self._popen.poll()
        if status is not None and self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        return status if status is None or status >= 0 else 128 - status

    def stopped(self) -> bool:
        """Tell whether it was stopped by a job control signal since the last call (``waitid(2)``)."""
        if self._popen.returncode is not None:
            return False
        try:
            state = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
        except ChildProcessError:
            return False
        return state is not None and state.si_pid == self.pid

    def signal(self, number: int) -> None:
        """Send a signal to the whole group; no group left is no error."""
        if self._popen.returncode is not None and sys.platform == "linux":
            return  # its number may be another group's by now; what it left behind has come to us
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def become_subreaper() -> None:
    """Have orphans below us come to us instead of PID 1 (``prctl(2)``; Linux only).

    A no-op elsewhere: there an agent's double-forked processes cannot be followed.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children(pid: int) -> list[int]:
    """Return the direct children of a process, adopted ones included (``proc(5)``: task/*/children)."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended, which Path.glob() of Python 3.11 raises, too
        for task in Path(f"/proc/{pid}/task").iterdir():
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


def working_inside(directory: Path) -> list[tuple[int, str]]:
    """Return pid and name of every process whose working directory is in a directory (``proc(5)``: cwd).

    Those of other pid namespaces and users are not seen.
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cwd").readlink().is_relative_to(directory):
                found.append((int(entry.name), (entry / "comm").read_text().strip()))
    return found


def mounted_inside(directory: Path) -> list[str]:
    """Return the mount points in a directory, itself included (``proc(5)``: mountinfo)."""
    try:
        table = Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return []
    points = (re.sub(rb"\\([0-7]{3})", _octal, line.split(b" ")[4]) for line in table.splitlines())
    return [path for path in map(os.fsdecode, points) if Path(path).is_relative_to(directory)]


def _octal(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 8)])


def _environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _marked(mark: bytes) -> list[int]:
    """Return every other process that was started with an environment variable of a given value.

    Arguments:
        mark: ``NAME=value``.

    """
    pids = (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if pid != os.getpid() and mark in _environment_of(pid).split(b"\0")]


def _is_own_command(pid: int) -> bool:
    """Tell whether another ralph-wrap, which an agent of ours has started, runs this for its own use."""
    return f"{_OWN}=1".encode() in _environment_of(pid).split(b"\0")


def _reap(pids: Collection[int]) -> None:
    """Collect those of the given children that have ended."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


class Offspring:
    """The processes that an agent has started and left.

    A session inside ours is one of them and ends like any other, by saving its work. Nobody but itself asks
    its own commands to end: TERM in the middle of its ``git add`` would stop that.

    Arguments:
        whole_process: all our children are the agent's; its orphans come to us. Otherwise only processes
            count that carry *mark* in their environment, children of ours or not.
        mark: ``NAME=value``.

    """

    def __init__(self, *, whole_process: bool, mark: str) -> None:
        self._whole_process = whole_process
        self._mark = mark.encode()

    def reap(self, agent: int) -> None:
        """Collect orphans that came to us and have ended; *agent* is waited for by somebody else."""
        if self._whole_process:
            _reap([pid for pid in children(os.getpid()) if pid != agent])

    def signal(self, number: int, except_group: int) -> None:
        """Send a signal to all of them but those of a process group, which was sent it already."""
        for pid in descendants(self._find()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) != except_group and not _is_own_command(pid):
                    os.kill(pid, number)

    def end(self, grace: float, urgent: Callable[[], bool], *, asked: bool) -> Ended:
        """End them and everything below them: TERM, grace, then KILL until none is found any more.

        Arguments:
            grace: seconds between TERM and KILL.
            urgent: tells that there is no time for any grace.
            asked: they were sent a signal already; to a session, another one means to hurry.

        """
        told: set[int] = set()
        deadline = time.monotonic() + grace
        give_up = deadline + UNKILLABLE_AFTER
        while roots := self._find():
            hurry = urgent() or time.monotonic() >= deadline
            for pid in descendants(roots):
                if hurry or (pid not in told and not _is_own_command(pid)):
                    told.add(pid)
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        if hurry or not asked:
                            os.kill(pid, signal.SIGKILL if hurry else signal.SIGTERM)
                        os.kill(pid, signal.SIGCONT)  # a stopped process does not see TERM
            _reap(roots)
            # Asked anew each time: whoever is killed leaves its children to us.
            if left := self._find():
                if time.monotonic() >= give_up:
                    return Ended(len(told), tuple(left))
                time.sleep(_TICK)
        return Ended(len(told), ())

    def _find(self) -> Collection[int]:
        return children(os.getpid()) if self._whole_process else _marked(self._mark)
