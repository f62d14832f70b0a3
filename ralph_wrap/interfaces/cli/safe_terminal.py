"""Let another program print on a terminal, without anything that drives the terminal."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import NoReturn

from ralph_wrap.agents.output.colours import ColoursOnly
from ralph_wrap.system.files import write_all

_CHUNK = 1 << 16
_STDOUT = 1


@contextlib.contextmanager
def safe_terminal() -> Iterator[None]:
    """Filter what we and our children print, if it goes to a terminal: an agent may have written it."""
    if not os.isatty(_STDOUT):
        yield
        return
    reading, writing = os.pipe()
    terminal = os.dup(_STDOUT)
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        _filter(reading, terminal)
    os.close(reading)
    os.dup2(writing, _STDOUT)
    os.close(writing)
    try:
        yield
    finally:
        os.dup2(terminal, _STDOUT)
        os.close(terminal)
        os.waitpid(pid, 0)


def _filter(source: int, terminal: int) -> NoReturn:
    try:
        os.dup2(terminal, _STDOUT)  # the pipe ends with its last writer, which we must not be
        for number in (signal.SIGINT, signal.SIGQUIT):  # Ctrl-C is for the program that prints
            signal.signal(number, signal.SIG_IGN)
        seen = ColoursOnly()
        while piece := os.read(source, _CHUNK):
            write_all(_STDOUT, seen.feed(piece))
        write_all(_STDOUT, seen.finish())
    finally:
        os._exit(0)
