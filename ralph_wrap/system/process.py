"""Children: our own short commands, and the agent with its process group.

Our own commands run in separate process groups. The terminal sends Ctrl-C to its foreground group, so it
cannot kill git during a save. Only we end these commands: they do not get the signals that whole groups get
(see :func:`_signals_held_back`).
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from ralph_wrap.system import files, process_table
from ralph_wrap.system.cancel import CancelToken

TimeoutExpired = subprocess.TimeoutExpired

PIPE = subprocess.PIPE
"""As the standard input of a command: we write to it while the command runs."""

OWN_COMMAND = "RALPH_WRAP_OWN_COMMAND"
"""In the environment of our own commands: the session they work for, or 1. Other ralph-wraps spare them."""

_LOWEST_PRIORITY = 19  # nice(1)
_AGENTS_GRACE = 5.0  # seconds between SIGTERM and SIGKILL to an agent, if our work with it was interrupted
_GRACE = 1.0  # seconds between the first signal to one of our commands and SIGKILL
_TICK = 0.05  # seconds between two looks, where no pidfd reports the end of a process

ENDING = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM})
_FOR_GROUPS = {*ENDING, signal.SIGTSTP}
"""Signals that terminals, and programs such as timeout(1), send to a whole process group."""


@contextlib.contextmanager
def _signals_held_back() -> Iterator[Callable[[], None]]:
    """Block the signals to our process group while a child is started.

    Until a child has its own group, it belongs to ours. If Ctrl-C kills it there, a git command fails without
    a reason (measured: 235 of 3,464 Ctrl-C during starts of commands). If Ctrl-Z stops it there, we hang:
    ``vfork(2)`` returns only at its ``execve(2)``.

    The mask is that of one thread. Another thread can take the signal, and then Python calls the handler in
    the main thread all the same (Python, "Signals and threads"). If there is one, handlers are deferred.

    Yields:
        A function to call in the child: it discards pending signals and restores our signal mask. Without
        this call the child keeps the signals blocked (``execve(2)``).

    """
    with contextlib.ExitStack() as stack:  # all of it is undone, even if a handler raises
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_GROUPS)
        stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        if process_table.has_other_threads() and threading.current_thread() is threading.main_thread():
            stack.enter_context(_handlers_deferred())

        def let_through() -> None:
            for number in _FOR_GROUPS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, signal.SIG_IGN)  # discards a pending one (POSIX, "Signal Actions")
                    signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

        yield let_through


@contextlib.contextmanager
def _handlers_deferred() -> Iterator[None]:
    """Have Python call its handlers of the signals to process groups at the end of the context."""
    arrived: list[int] = []
    with contextlib.ExitStack() as stack:
        stack.callback(_raise_again, arrived)
        for number in _FOR_GROUPS:
            handler = signal.getsignal(number)
            if callable(handler):
                stack.callback(signal.signal, number, handler)
                signal.signal(number, lambda number, _frame: arrived.append(number))
        yield


def _raise_again(signals: Iterable[int]) -> None:
    for number in signals:
        signal.raise_signal(number)


class CompletedCommand(NamedTuple):
    """The result of a command: its exit status (negative: the signal), output and errors."""

    status: int
    stdout: bytes
    stderr: bytes


class RunningCommand:
    """One of our commands, which runs while we do other work; its output is collected in memory.

    Arguments:
        cwd: its working directory.
        env: its whole environment.
        stdin: its standard input; ``None`` is empty, :data:`PIPE` a pipe.
        with_terminal: it keeps our controlling terminal. In the background it would stop (SIGTTIN) when it
            asks a question there, as ssh(1) does. Without a terminal it gets all signals. It may leave a
            server or a shared connection running, and we must not end these.
        inherited: descriptors that it gets besides its standard streams.
        examine: returns the path of a file for which it may wait without end, ``None`` if there is none.
        cancel: a signal ends the wait of ``git.finish_git``; ``None``: no signal does.

    Raises:
        OSError: the command could not be executed.

    """

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: bytes | int | None = None,
        with_terminal: bool = True,
        inherited: Sequence[int] = (),
        examine: Callable[[], str | None] = lambda: None,
        cancel: CancelToken | None = None,
    ) -> None:
        self.examine = examine
        self.cancel = cancel
        self._completed: CompletedCommand | None = None
        self._errors = files.anonymous_file()  # a file, not a pipe: we can read it while the command runs
        # No pipe: after a time-out, communicate() writes no more input.
        given = files.anonymous_file()
        try:
            if isinstance(stdin, bytes):
                files.write_all(given, stdin)
                os.lseek(given, 0, os.SEEK_SET)
                stdin = given
            with _signals_held_back() as let_through:
                self._popen = subprocess.Popen(
                    argv,
                    cwd=cwd,
                    env={OWN_COMMAND: "1", **env},
                    stdin=subprocess.DEVNULL if stdin is None else stdin,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    pass_fds=inherited,
                    process_group=0 if with_terminal else None,
                    start_new_session=not with_terminal,
                    preexec_fn=None if with_terminal else let_through,  # noqa: PLW1509 -- it takes no lock
                )
        except BaseException:
            if "_popen" in vars(self):
                self.end()  # the handler of a signal that came meanwhile has raised
            os.close(self._errors)
            raise
        finally:
            os.close(given)

    @property
    def pid(self) -> int:
        """Its process id; valid until we have waited for it."""
        return self._popen.pid

    def wait(self, timeout: float | None = None) -> CompletedCommand:
        """Wait for the end.

        Arguments:
            timeout: seconds; ``None`` waits as long as it takes. May be called again after a time-out.

        Raises:
            TimeoutError: it is still running.

        """
        if self._completed is None:
            try:
                stdout = self._collect(timeout)
            except subprocess.TimeoutExpired as error:
                raise TimeoutError(str(error)) from None
            except ValueError:  # Ctrl-C came after all output was read, and its pipe is closed
                stdout, _ = b"", self._popen.wait()
            self._completed = CompletedCommand(self._popen.returncode, stdout, self._read_errors())
        return self._completed

    def _collect(self, timeout: float | None) -> bytes:
        """Return its whole output once it has ended; :class:`subprocess.TimeoutExpired` loses nothing."""
        return self._popen.communicate(timeout=timeout)[0]

    def ended(self, timeout: float) -> bool:
        """Wait at most this number of seconds, and return whether the command ended."""
        try:
            self.wait(timeout)
        except TimeoutError:
            return False
        return True

    def latest(self) -> str:
        """Return the last line on its standard error so far; a carriage return ends one too."""
        return re.split(r"[\r\n]+", self._read_errors().decode(errors="replace").strip())[-1]

    def give_way(self) -> None:
        """Give it the lowest priority, also for the disk (``ioprio_set(2)``: it follows the niceness)."""
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, self._popen.pid, _LOWEST_PRIORITY)

    def end(self) -> None:
        """End its process group if it still runs, and reap it.

        SIGKILL is the last step. After it git leaves its locks behind, and no process could move a locked
        branch any more. Git removes its locks at some signals (sigchain.c: sigchain_push_common). SIGPIPE is
        the only one of them that our commands do not block.
        """
        if self._completed is None and self._popen.poll() is None:
            for number in (signal.SIGPIPE, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._popen.pid, number)
                if self.ended(_GRACE):  # not reaped yet, so the number still belongs to its group
                    break
        self.wait()

    def _read_errors(self) -> bytes:
        return os.pread(self._errors, os.fstat(self._errors).st_size, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        os.close(self._errors)


class StandardStreams(NamedTuple):
    """The descriptors that become the standard streams of a process; ``None`` inherits ours."""

    stdin: int | None
    stdout: int | None
    stderr: int | None


def detach(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path,
    env: Mapping[str, str],
    inherited: Sequence[int] = (),
) -> None:
    """Start a command that runs on after our end; no process waits for it.

    Raises:
        OSError: it could not be started.

    """
    with _signals_held_back() as let_through:
        popen = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            **StandardStreams(*[subprocess.DEVNULL] * 3)._asdict(),
            pass_fds=inherited,
            start_new_session=True,
            preexec_fn=let_through,  # noqa: PLW1509 -- it takes no lock
        )
    popen.returncode = 0  # or its __del__ warns about a child still running, which is what was asked for


def run_apart(
    argv: Sequence[str | os.PathLike[str]], *, cwd: Path, env: Mapping[str, str]
) -> CompletedCommand:
    """Run a command without a terminal, and wait for it; what it leaves running is none of our own commands.

    Raises:
        OSError: it could not be started.

    """
    ended = subprocess.run(
        argv,
        cwd=cwd,
        env={**env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
        check=False,
    )
    return CompletedCommand(ended.returncode, ended.stdout, ended.stderr)


def _take_terminal(terminal: int) -> None:
    """Become the foreground group of a terminal; the child calls this before its exec.

    If the parent did it, the agent could read too early, from a terminal that is not its own yet. SIGTTIN
    would stop it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    with contextlib.suppress(OSError):  # the user may have closed the window; the agent will notice
        os.tcsetpgrp(terminal, os.getpid())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTTOU})


class ProcessSpec(NamedTuple):
    """What a process group starts with.

    Attributes:
        argv: the command; ``argv[0]`` is looked up on the ``PATH`` of *env* if it has no slash.
        cwd: its working directory.
        env: its whole environment.
        streams: its standard streams.
        inherited: one more descriptor that it gets.
        terminal: descriptor of the controlling terminal whose foreground group it becomes.

    """

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    streams: StandardStreams
    inherited: int
    terminal: int | None = None


class ProcessGroup:
    """An agent: a process in a process group of its own, and that group.

    Arguments:
        spec: what it starts with.
        more: further descriptors that it gets.
        shielded: its first process blocks the signals that end a group, until its child has ended.

    Raises:
        OSError: it could not be executed.

    """

    def __init__(self, spec: ProcessSpec, *, more: Sequence[int] = (), shielded: bool = False) -> None:
        popen = None
        self.pidfd = -1
        try:
            with _signals_held_back() as let_through:

                def begin() -> None:
                    let_through()
                    if spec.terminal is not None:
                        _take_terminal(spec.terminal)
                    if shielded:
                        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)

                popen = subprocess.Popen(
                    spec.argv,
                    cwd=spec.cwd,
                    env=spec.env,
                    **spec.streams._asdict(),
                    process_group=0,
                    pass_fds=(spec.inherited, *more),
                    preexec_fn=begin,  # noqa: PLW1509 -- it takes no lock
                )
        except BaseException:
            # A signal that was held back raises here, Ctrl-C above all. The caller gets no group to end.
            if popen is not None:
                self._popen, self.pid = popen, popen.pid
                self.end()
            raise
        self._popen, self.pid = popen, popen.pid
        # Readable at the agent's end (pidfd_open(2), Linux 5.3). A thread has no other notice: no SIGCHLD.
        # Portable Pythons lack it: https://github.com/astral-sh/python-build-standalone/issues/193
        if hasattr(os, "pidfd_open"):
            self.pidfd = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Return the exit status as a shell counts it (128+n for signal n), ``None`` while it runs."""
        status = self._popen.poll()
        if status is not None and self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        return status if status is None or status >= 0 else 128 - status

    def wait(self, timeout: float) -> None:
        """Wait for the end of its first process, at most this number of seconds; perhaps shorter."""
        if self.pidfd < 0:
            time.sleep(min(timeout, _TICK))
            return
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        poll.poll(timeout * 1000)

    def terminate(self) -> None:
        """Ask the group to end, by SIGTERM."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a stopped process handles SIGTERM only after SIGCONT

    def kill(self) -> None:
        """Kill the group at once."""
        self.signal(signal.SIGKILL)

    def end(self) -> None:
        """Ask the group to end, and kill it after a while or at a second signal, which raises here."""
        try:
            self.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(_AGENTS_GRACE)
        finally:
            if self._popen.poll() is None:
                self.kill()
                self._popen.wait()
            self.poll()

    def stopped(self) -> bool:
        """Return whether it was stopped by a job control signal since the last call (``waitid(2)``)."""
        if self._popen.returncode is not None:
            return False
        try:
            state = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
        except ChildProcessError:
            return False
        return state is not None and state.si_pid == self.pid

    def signal(self, number: int) -> None:
        """Send a signal to the whole group; no group left is no error."""
        if self._popen.returncode is not None:
            return  # another group may have its number now; we have adopted the rest of its processes
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
