"""Start a child of PID 1: its sweep, or its command."""

from __future__ import annotations

import os
from contextlib import suppress

from ralph_wrap.interfaces.init.wait import SignalWaiter, say

AT_START = "RALPH_WRAP_AT_START"
"""Variable in the environment of a sweep that PID 1 starts: the configuration decides what the sweep does."""

NOT_RUNNABLE = 126
"""Exit status of a program that cannot run, as in a shell and ``docker run``."""

_NOT_FOUND = 127  # the same, for a program that does not exist


def start(words: tuple[str, ...], signals: SignalWaiter, *, in_background: bool) -> int:
    """Start a program in its own process group, and return its pid.

    Arguments:
        words: the program and its arguments.
        signals: our signals, which the child gives back.
        in_background: it is a sweep; otherwise it is the command, and gets the terminal.

    Raises:
        OSError: the kernel cannot make another process.

    """
    if pid := os.fork():
        return pid
    status = NOT_RUNNABLE
    try:
        os.setpgid(0, 0)  # in our group Ctrl-C would reach the command twice, and would reach a sweep
        if in_background:
            os.environ[AT_START] = "1"
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)
        elif os.isatty(0):
            with suppress(OSError):  # the terminal belongs to another session (setsid(2))
                os.tcsetpgrp(0, os.getpid())
        signals.give_back()
        os.execvp(words[0], words)  # noqa: S606 -- an init has to start its command
    except FileNotFoundError as error:
        status = _NOT_FOUND
        say(f"{words[0]}: {error.strerror}")
    except Exception as error:  # noqa: BLE001 -- the child must not go on as a second init
        say(f"{words[0]}: {getattr(error, 'strerror', error)}")
    finally:
        os._exit(status)
