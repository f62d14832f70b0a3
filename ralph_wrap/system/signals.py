"""Signals that end a session: handlers record and never raise; a descriptor wakes the waiting code.

If a handler raises, a second signal can interrupt the clean-up (measured). So handlers only count. A signal
that was ignored at our start stays ignored: ``nohup`` and a shell's background jobs rely on this.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Self

from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.process import ENDING

LAST_ITERATION = signal.SIGUSR1
"""Asks a session to end after its iteration, where the file with the request cannot be written."""

_WAKING = (signal.SIGCHLD, signal.SIGTSTP, signal.SIGCONT, LAST_ITERATION)


class SignalHandlers:
    """Handlers for INT, TERM, HUP and QUIT while the context is entered; restored afterwards.

    Enter it in the main thread: the only one in which Python lets handlers be set.

    Attributes:
        cancel: the signals that have arrived so far.
        suspended: the user has typed Ctrl-Z, and the session has not stopped yet.
        last_iteration: a ``stop --after-iteration`` has come as a signal (:data:`LAST_ITERATION`).
        wakeup: a descriptor that becomes readable with every signal, children's ends included; -1 while
            the context is not entered.

    """

    def __init__(self) -> None:
        self.cancel = CancelToken()
        self.suspended = False
        self.last_iteration = False
        self.wakeup = -1
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.wakeup, written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._stack.callback(os.close, self.wakeup)
        self._stack.callback(os.close, written)
        before = signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        self._stack.callback(signal.set_wakeup_fd, before)
        for number in (*ENDING, *_WAKING):
            handler = signal.getsignal(number)
            if handler is signal.SIG_IGN and number != signal.SIGCHLD:
                continue
            if number == LAST_ITERATION and handler is not signal.SIG_DFL:  # a program with a Session uses it
                continue
            signal.signal(number, self._record)
            self._stack.callback(signal.signal, number, handler or signal.SIG_DFL)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _record(self, number: int, _frame: FrameType | None) -> None:
        if number in ENDING:
            self.cancel.record(number)
        elif number == signal.SIGTSTP:
            self.suspended = True
        elif number == LAST_ITERATION:
            self.last_iteration = True

    def drain(self) -> None:
        """Empty the descriptor, so that it reports the next signal."""
        with contextlib.suppress(BlockingIOError):
            while self.wakeup >= 0 and os.read(self.wakeup, 512):
                pass


def suspend() -> None:
    """Stop our process group as Ctrl-Z would, and return when it continues.

    No shell can continue an orphaned process group, so the kernel ignores the stop there.
    """
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.killpg(os.getpgrp(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, handler)


def run_in_foreground(argv: Sequence[str | os.PathLike[str]], env: Mapping[str, str]) -> int:
    """Run a command for the user: it has our terminal, our streams and our process group.

    The terminal sends Ctrl-C and Ctrl-Z to both of us. The command decides what Ctrl-C means, and we wait for
    its end: a pager goes on. A signal to us alone is for the command.

    Arguments:
        argv: the command; ``argv[0]`` is looked up on our ``PATH``.
        env: its whole environment.

    Returns:
        Its exit status; 128 and the number of the signal if a signal ended it.

    Raises:
        OSError: it could not be executed.

    """
    sys.stdout.flush()
    sys.stderr.flush()
    ignored = {number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN}
    # Python ignores SIGPIPE, and so would the command.
    child = os.posix_spawnp(argv[0], tuple(argv), env, setsigdef=[signal.SIGPIPE])
    handlers: dict[int, Callable[[int, FrameType | None], None] | signal.Handlers] = {
        signal.SIGINT: lambda *_: None,
        signal.SIGQUIT: lambda *_: None,
        signal.SIGTERM: lambda number, _: os.kill(child, number),
        signal.SIGHUP: lambda number, _: os.kill(child, number),
        signal.SIGTSTP: signal.SIG_DFL,
    }
    before = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if number not in ignored
    }
    try:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status
