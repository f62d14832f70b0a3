"""One of our commands that answers questions while it runs."""

from __future__ import annotations

import os
import select
from typing import Any

from ralph_wrap.system.process import PIPE, RunningCommand

LONGEST_QUESTION = 4096
"""Bytes that a write to an empty pipe takes without a wait, however small the pipe is (pipe(7))."""

_PART = 1 << 20  # bytes that one read(2) returns at most


class Dialogue(RunningCommand):
    """A command that reads questions from its standard input, and answers each on its standard output.

    Ask only when the answers to all earlier questions have been received. Both sides would wait for each
    other if the answers filled the one pipe, and the questions the other.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, stdin=PIPE, **more)

    def ask(self, question: bytes) -> None:
        """Write a question of at most :data:`LONGEST_QUESTION` bytes.

        Raises:
            BrokenPipeError: the command has ended.

        """
        assert self._popen.stdin is not None
        assert len(question) <= LONGEST_QUESTION
        os.write(self._popen.stdin.fileno(), question)

    def has_answer(self, seconds: float) -> bool:
        """Wait at most this number of seconds, and return whether :meth:`receive` would return at once."""
        assert self._popen.stdout is not None
        return bool(select.select([self._popen.stdout], [], [], seconds)[0])

    def receive(self) -> bytes:
        """Return the next bytes of its output; none at its end."""
        assert self._popen.stdout is not None
        return os.read(self._popen.stdout.fileno(), _PART)

    def errors(self) -> bytes:
        """Return what it has written to its standard error so far."""
        return self._read_errors()
