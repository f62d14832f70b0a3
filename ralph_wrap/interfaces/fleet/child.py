"""A session in a process of its own, whose output the worker passes on and keeps."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from ralph_wrap.errors import RalphError
from ralph_wrap.interfaces.fleet.grace import GracePeriod
from ralph_wrap.system.files import write_all
from ralph_wrap.system.process import ENDING
from ralph_wrap.system.signals import SignalHandlers

LARGEST_OUTPUT = 1 << 20
"""Bytes of output that the worker keeps: the last ones."""

NO_ANSWER = 75
"""Exit status of a session that could not begin because its remote does not answer (``EX_TEMPFAIL``)."""

_CHUNK = 1 << 16
_LOOK = 0.5  # seconds between two looks
_ENDED, _REFUSED = b"ended", b"refused"


class EndedSession(NamedTuple):
    """How the process of a session ended.

    Attributes:
        status: its exit status; negative for a signal.
        is_refused: the session could not start.
        is_crashed: it ended without an answer.

    """

    status: int
    is_refused: bool
    is_crashed: bool


class ForkedSession:
    """A session in a child process with its own process group: only the worker sends it signals.

    Arguments:
        run: runs the session in the child, and returns its exit status.

    """

    def __init__(self, run: Callable[[], int]) -> None:
        self._output, output = os.pipe()
        self._answer, answer = os.pipe()
        self._signalled = 0
        sys.stdout.flush()
        sys.stderr.flush()
        # The child must not lose a signal while it has the handlers of its parent.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            for number in (*ENDING, signal.SIGCHLD, signal.SIGTSTP, signal.SIGCONT):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            _be_session(run, output, answer)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(output)
        os.close(answer)
        os.set_blocking(self._output, False)

    def wait(
        self,
        signals: SignalHandlers,
        grace: GracePeriod,
        keep: Callable[[bytes], None],
        tick: Callable[[], None],
    ) -> EndedSession:
        """Wait for the end, pass signals on, and return how it ended.

        Arguments:
            signals: of the worker.
            grace: the time that is left after a signal.
            keep: gets the output.
            tick: called between two looks.

        """
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        poll.register(signals.wakeup, select.POLLIN)
        found = 0
        while not found:
            poll.poll(_LOOK * 1000)
            signals.drain()
            self._read(keep)
            self._pass_on(grace)
            tick()
            found, status = os.waitpid(self.pid, os.WNOHANG)
        self._read(keep)
        answer = os.read(self._answer, _CHUNK)
        os.close(self._answer)
        os.close(self._output)
        return EndedSession(os.waitstatus_to_exitcode(status), answer == _REFUSED, not answer)

    def _pass_on(self, grace: GracePeriod) -> None:
        """Send the first signal at once, and the second one when the session must end."""
        due = grace.has_begun + (grace.has_begun and grace.session_must_end)
        if self._signalled < due:
            self._signalled = due
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def _read(self, keep: Callable[[bytes], None]) -> None:
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._output, _CHUNK):
                keep(chunk)
                with contextlib.suppress(OSError):  # the reader of our output has gone
                    write_all(1, chunk)


def _be_session(run: Callable[[], int], output: int, answer: int) -> NoReturn:
    status, word = RalphError.exit_code, b""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor, source in enumerate((nothing, output, output)):
            os.dup2(source, descriptor)
        try:
            status, word = run(), _ENDED
        except SystemExit as ended:  # its error is printed
            status, word = (ended.code if isinstance(ended.code, int) else RalphError.exit_code), _REFUSED
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(answer, word)
    finally:
        os._exit(status)  # the rest of the stack belongs to the parent
