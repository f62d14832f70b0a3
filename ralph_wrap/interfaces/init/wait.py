"""What wakes PID 1, and its one way to speak; neither can hang it.

Why not ``sigwait(3)``: the sessions that PID 1 waits for are not its children, so no signal tells their end,
only a descriptor does (``pidfd_open(2)``). One ``poll(2)`` hears both. Signals are blocked at all other
times, and have a handler, without which the kernel delivers none to PID 1.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Faults of our own cannot wait; a failing write is an error where it is made; the last two: see below.
_NOT_TAKEN = frozenset(
    getattr(signal, f"SIG{name}")
    for name in (
        *("KILL", "STOP", "SEGV", "BUS", "FPE", "ILL", "ABRT", "TRAP", "SYS"),
        *("PIPE", "XFSZ", "TTIN", "TTOU"),
    )
)


class Signals:
    """All signals that can be taken. One that was ignored when we were started stays ignored."""

    def __init__(self) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        every = signal.valid_signals() - _NOT_TAKEN
        self._taken = {n for n in every if n == signal.SIGCHLD or signal.getsignal(n) is not signal.SIG_IGN}
        signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)
        self._told, teller = os.pipe()
        os.set_blocking(self._told, False)
        os.set_blocking(teller, False)
        signal.set_wakeup_fd(teller, warn_on_full_buffer=False)
        for number in self._taken:
            signal.signal(number, _nothing)
        # TTOU stops a process in the background that hands its terminal on.
        self._terminal = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTTIN, signal.SIGTTOU)}

    def wait(self, pidfds: Iterable[int], timeout: float | None) -> bytes:
        """Wait until a signal has come, a process has ended, or the time is over.

        Arguments:
            pidfds: of the processes.
            timeout: in seconds; ``None`` for no limit.

        Returns:
            The numbers of the signals, in order.

        """
        poll = select.poll()
        for descriptor in (self._told, *pidfds):
            poll.register(descriptor, select.POLLIN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._taken)
        try:
            poll.poll(None if timeout is None else timeout * 1000)
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)
        with suppress(BlockingIOError):
            return os.read(self._told, 4096)
        return b""

    def give_back(self) -> None:
        """Restore, in a child, what a program expects at its start."""
        for number in {*self._taken, signal.SIGPIPE, signal.SIGXFSZ}:  # Python ignores the last two
            signal.signal(number, signal.SIG_DFL)
        for number, handler in self._terminal.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def _nothing(_number: int, _frame: object) -> None:
    pass  # the descriptor tells


def say(message: str) -> None:
    """Write one line to stderr, unless nobody takes it: a terminal that is held (Ctrl-S) must not hold us."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    with suppress(OSError):
        if poll.poll(100):
            os.write(2, f"ralph-wrap init: {message}\n".encode(errors="backslashreplace"))
