"""The last line of a terminal: it shows how far long work is, out of the way of all that is printed there.

Several write on one terminal, so one object knows where its cursor is. Whoever is about to write asks
:meth:`LastLine.taken_away` what goes first, and tells :meth:`LastLine.wrote` what it was. The line is drawn
only where nobody else's has begun, and is no longer than the terminal is wide: what has wrapped cannot be
taken away. Nothing is drawn while the terminal is another job's, or the shell's.
"""

from __future__ import annotations

import contextlib
import os
import select
import unicodedata

_TAKE_AWAY = b"\r\x1b[K"
_WIDTH = 80  # columns, where the terminal does not tell


class LastLine:
    """See the module.

    Arguments:
        descriptor: the terminal.
        drawn: something may be drawn there at all; otherwise it is only known where the cursor is.

    """

    def __init__(self, descriptor: int, *, drawn: bool) -> None:
        self._descriptor = descriptor
        self._may_draw = drawn
        self._drawn = b""
        self._at_start = True

    def is_on(self, descriptor: int) -> bool:
        """Tell whether what is written to a descriptor comes to this terminal, as far as can be told."""
        try:
            return os.isatty(descriptor) and os.path.samestat(
                os.fstat(descriptor), os.fstat(self._descriptor)
            )
        except OSError:
            return False

    def show(self, words: str) -> None:
        """Draw some words, if there is room for them now; none take the line away.

        Arguments:
            words: printable.

        """
        words = _cut(words, self._columns() - 1) if words and self._may_draw else ""
        line = words.encode(errors="backslashreplace")
        if line == self._drawn or (not self._drawn and not self._at_start):
            return
        if line and not self._is_ours():
            return
        if self._write(_TAKE_AWAY + line):
            self._drawn = line

    def taken_away(self) -> bytes:
        """Return what takes the line away; to be written before anything else is."""
        drawn, self._drawn = self._drawn, b""
        return _TAKE_AWAY if drawn else b""

    def begun(self) -> bytes:
        """Return the same, and what ends a line that somebody has begun: what follows is on its own."""
        away = self.taken_away()
        return away if self._at_start else away + b"\n"

    def wrote(self, words: bytes) -> None:
        """Take note of what was written on the terminal."""
        if words:
            self._at_start = words.endswith(b"\n")

    def _columns(self) -> int:
        with contextlib.suppress(OSError):
            return os.get_terminal_size(self._descriptor).columns or _WIDTH
        return _WIDTH

    def _is_ours(self) -> bool:
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:  # not the terminal that we are controlled by
            return False

    def _write(self, line: bytes) -> bool:
        """Write without waiting; tell whether it was written."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        with contextlib.suppress(OSError):
            return bool(poll.poll(0)) and bool(os.write(self._descriptor, line))
        return False


def _cut(words: str, cells: int) -> str:
    """Return the beginning of a text that fills so many cells: in names of files, letters may be wide."""
    if words.isascii():
        return words[:cells]
    for end, letter in enumerate(words):
        cells -= 0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        if cells < 0:
            return words[:end]
    return words
