"""Children: our own short commands, and the agent with its process group.

Our own commands run in a process group of their own, so that Ctrl-C, which the terminal sends to its
foreground group, cannot kill git in the middle of a save. Only we end them: they are deaf to the signals that
whole groups get (see :func:`_signals_held_back`).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


OWN_COMMAND = "RALPH_WRAP_OWN_COMMAND"
"""In the environment of our own commands: the session they work for, or 1. Other ralph-wraps spare them."""

_LOWEST_PRIORITY = 19  # nice(1)
_GRACE = 1.0  # seconds between asking a command of ours to end and killing it

_FOR_GROUPS = {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP, signal.SIGTERM}
"""What terminals, and programs such as timeout(1), send to a whole process group."""


@contextlib.contextmanager
def _signals_held_back() -> Iterator[Callable[[], None]]:
    """Hold the signals back that our process group gets while a child is started.

    Until it has a group of its own, a child belongs to ours. Killed there it is a git that fails for no
    reason (measured: 235 of 3,464 Ctrl-C that came while commands were started one after the other). Stopped
    there it holds us up for good, because ``vfork(2)`` returns with its ``execve(2)``.

    Yields:
        What is called in the child by then, if anything is: it forgets what has come, and lets all signals
        through as we do. Without it the child keeps them blocked (``execve(2)``).

    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_GROUPS)

    def let_through() -> None:
        for number in _FOR_GROUPS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_IGN)  # discards what is pending (POSIX, "Signal Actions")
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        yield let_through
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Completed(NamedTuple):
    """What a finished command left: its exit status (negative: the signal), output and errors."""

    status: int
    stdout: bytes
    stderr: bytes


def anonymous_file() -> int:
    """Return a descriptor of a new file without a name, in memory where the system can do that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ralph-wrap", os.MFD_CLOEXEC)
    import tempfile  # noqa: PLC0415 -- not needed on Linux

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Running:
    """A command of ours that runs while we do something else; its output is collected in memory.

    Arguments:
        cwd: its working directory.
        env: its whole environment.
        stdin: what it reads; ``None`` is nothing.
        with_terminal: it keeps the terminal that we are controlled by. In the background it would be stopped
            (SIGTTIN) at a question that it asks there, as ssh(1) does. Without, it hears all signals: what it
            leaves behind, a server or a shared connection, is not ours to end.
        inherited: descriptors that it gets besides its standard streams.

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
        with_terminal: bool = True,
        inherited: Sequence[int] = (),
    ) -> None:
        self._stdin = stdin
        self._completed: Completed | None = None
        self._errors = anonymous_file()  # a file, not a pipe: what is in it can be read while it runs
        try:
            with _signals_held_back() as let_through:
                self._popen = subprocess.Popen(
                    argv,
                    cwd=cwd,
                    env={OWN_COMMAND: "1", **env},
                    stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    pass_fds=inherited,
                    process_group=0 if with_terminal else None,
                    start_new_session=not with_terminal,
                    preexec_fn=None if with_terminal else let_through,  # noqa: PLW1509 -- it takes no lock
                )
        except BaseException:
            os.close(self._errors)
            raise

    @property
    def pid(self) -> int:
        """Its process id, until somebody has waited for it."""
        return self._popen.pid

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

    def give_way(self) -> None:
        """Let everybody else go first, also to the disk (``ioprio_set(2)``: it follows the niceness)."""
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, self._popen.pid, _LOWEST_PRIORITY)

    def end(self) -> None:
        """End its process group if it still runs, and reap it.

        Not by SIGKILL at once: git would leave its locks behind, that of a branch among them, which nobody
        could move any more. Of the signals at which it takes them away (sigchain.c: sigchain_push_common)
        SIGPIPE is the one that is not held back.
        """
        if self._completed is None and self._popen.poll() is None:
            for number in (signal.SIGPIPE, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._popen.pid, number)
                if self.ended(_GRACE):  # not reaped before: the group's number is its own
                    break
        self.wait()

    def _said(self) -> bytes:
        return os.pread(self._errors, os.fstat(self._errors).st_size, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        os.close(self._errors)


def detach(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path,
    env: Mapping[str, str],
    inherited: Sequence[int] = (),
) -> None:
    """Start a command that outlives us and that nobody waits for.

    Arguments:
        cwd: its working directory.
        env: its whole environment.
        inherited: descriptors that it gets besides its standard streams.

    Raises:
        OSError: it could not be started.

    """
    with _signals_held_back() as let_through:
        popen = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=inherited,
            start_new_session=True,
            preexec_fn=let_through,  # noqa: PLW1509 -- it takes no lock
        )
    popen.returncode = 0  # or its __del__ warns about a child still running, which is what was asked for


def become(argv: Sequence[str | os.PathLike[str]], env: Mapping[str, str]) -> NoReturn:
    """Run a command in our place: it has our terminal, our process group, and our end is its own.

    Arguments:
        argv: the command; ``argv[0]`` is looked up on the ``PATH`` of *env*.
        env: its whole environment.

    Raises:
        OSError: it could not be executed.

    """
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and so would the command
    os.execvpe(argv[0], [os.fspath(word) for word in argv], env)  # noqa: S606 -- no shell is wanted


class Streams(NamedTuple):
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
        inherited: one more descriptor that it gets.
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
        inherited: int,
        terminal: int | None = None,
    ) -> None:
        with _signals_held_back() as let_through:

            def begin() -> None:
                let_through()
                # In the child, before exec: from the parent there would be a moment in which the agent
                # already reads from a terminal that is not yet its own, and is stopped by SIGTTIN.
                if terminal is not None:
                    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
                    with contextlib.suppress(OSError):  # its window is closed: the agent will see that itself
                        os.tcsetpgrp(terminal, os.getpid())
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTTOU})

            self._popen = subprocess.Popen(
                argv,
                cwd=cwd,
                env=env,
                stdin=streams.stdin,
                stdout=streams.stdout,
                stderr=streams.stderr,
                process_group=0,
                pass_fds=(inherited,),
                preexec_fn=begin,  # noqa: PLW1509 -- we start no threads
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
