"""Lend the controlling terminal to an interactive agent, and take it back."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios
from collections.abc import Iterator

from ralph_wrap.config import AgentSettings
from ralph_wrap.system.process import ProcessGroup
from ralph_wrap.system.screen import RESTORED
from ralph_wrap.system.signals import suspend


class Terminal:
    """The controlling terminal, which an interactive agent may use.

    Attributes:
        descriptor: ``None`` if agents do not get it: they have a prompt, or there is no terminal.

    """

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Take the terminal back at the end, and restore its mode; enter this before the agent starts."""
        if self.descriptor is None:
            yield
            return
        mode = None
        with contextlib.suppress(termios.error):  # the user closed the window
            mode = termios.tcgetattr(self.descriptor)
        try:
            yield
        finally:
            self._give(os.getpgrp())
            if mode is not None:
                with contextlib.suppress(termios.error):
                    termios.tcsetattr(self.descriptor, termios.TCSADRAIN, mode)

    def restore_screen(self) -> None:
        """Leave the alternate screen and show the cursor, after an agent that was killed.

        What it has switched is not known: it wrote to the terminal itself.
        """
        if self.descriptor is None:
            return
        poll = select.poll()
        poll.register(self.descriptor, select.POLLOUT)
        with contextlib.suppress(OSError):  # the user closed the window
            if poll.poll(0):  # not after Ctrl-S, where the write would wait for Ctrl-Q
                os.write(self.descriptor, RESTORED)

    def suspend_with(self, group: ProcessGroup) -> None:
        """Stop as the agent did after Ctrl-Z, so that the shell gets the terminal; later continue both."""
        self._give(os.getpgrp())
        suspend()
        with contextlib.suppress(OSError):  # the user closed the window
            if os.tcgetpgrp(self.descriptor or 0) == os.getpgrp():
                self._give(group.pid)
        group.signal(signal.SIGCONT)

    def _give(self, group: int) -> None:
        # The kernel sends SIGTTOU to a caller in a background group, unless it blocks SIGTTOU (tcsetpgrp(3)).
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self.descriptor or 0, group)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def find_terminal(agent: AgentSettings) -> Terminal:
    """Return the terminal to lend: ours, if we are in the foreground and the agent has no prompt."""
    if agent.prompt is None and agent.prompt_file is None and os.isatty(0):
        with contextlib.suppress(OSError):  # a terminal, but not our controlling one
            if os.tcgetpgrp(0) == os.getpgrp():
                return Terminal(0)
    return Terminal(None)
