"""How PID 1 waits for signals and ends of processes, and how it prints; neither can block it.

Why not ``sigwait(3)``: the sessions that PID 1 waits for are not its children. No signal reports their end,
only a descriptor does (``pidfd_open(2)``). One ``poll(2)`` waits for both. Signals are blocked at all other
times. Each has a handler: the kernel delivers only signals that have one to PID 1.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable
from contextlib import suppress

# We cannot delay faults. SIGPIPE and SIGXFSZ would only repeat the error that the failed write(2) returns.
# For SIGTTIN and SIGTTOU see below.
_NOT_TAKEN = frozenset(
    getattr(signal, f"SIG{name}")
    for name in (
        *("KILL", "STOP", "SEGV", "BUS", "FPE", "ILL", "ABRT", "TRAP", "SYS"),
        *("PIPE", "XFSZ", "TTIN", "TTOU"),
    )
)

HELD_BACK = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
"""Signals that ``ralph-wrap init`` blocks before it becomes this program. The kernel discards a signal for
PID 1 without a handler, but keeps a blocked one (pid_namespaces(7), execve(2))."""


class SignalWaiter:
    """All signals that PID 1 handles. A signal that was ignored at our start stays ignored."""

    def __init__(self) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, ()) - HELD_BACK
        every = signal.valid_signals() - _NOT_TAKEN
        self._taken = {n for n in every if n == signal.SIGCHLD or signal.getsignal(n) is not signal.SIG_IGN}
        signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)
        self._wakeups, wakeup = os.pipe()
        os.set_blocking(self._wakeups, False)
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        for number in self._taken:
            signal.signal(number, _nothing)
        # TTOU stops a background process that gives its terminal to another process group.
        self._terminal = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTTIN, signal.SIGTTOU)}

    def wait(self, pidfds: Iterable[int], timeout: float | None) -> bytes:
        """Wait until a signal has come, a process has ended, or the time is over.

        Arguments:
            pidfds: descriptors of the processes (``pidfd_open(2)``).
            timeout: in seconds; ``None`` for no limit.

        Returns:
            The numbers of the signals, in order.

        """
        poll = select.poll()
        for descriptor in (self._wakeups, *pidfds):
            poll.register(descriptor, select.POLLIN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._taken)
        try:
            poll.poll(None if timeout is None else timeout * 1000)
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)
        with suppress(BlockingIOError):
            return os.read(self._wakeups, 4096)
        return b""

    def give_back(self) -> None:
        """Restore, in a child, the signal state that a program expects at its start."""
        for number in {*self._taken, signal.SIGPIPE, signal.SIGXFSZ}:  # Python ignores the last two
            signal.signal(number, signal.SIG_DFL)
        for number, handler in self._terminal.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def _nothing(_number: int, _frame: object) -> None:
    pass  # the signal's number arrives through the wake-up descriptor


def say(message: str) -> None:
    """Write one line to stderr, unless it takes none within 0.1 s, like a stopped terminal (Ctrl-S)."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    with suppress(OSError):
        if poll.poll(100):
            os.write(2, f"ralph-wrap init: {message}\n".encode(errors="backslashreplace"))
