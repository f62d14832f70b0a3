"""The status line: it shows the progress on the last line of a terminal, below all other output.

Several writers share one terminal, so one object tracks its cursor. Before a write, the writer prints the
bytes of :meth:`StatusLine.taken_away`. After it, the writer passes its output to :meth:`StatusLine.wrote`.
The line is drawn only if no other line is unfinished. It is never wider than the terminal: a wrapped line
cannot be removed. Nothing is drawn while another job or the shell has the terminal.
"""

from __future__ import annotations

import contextlib
import os
import select

from ralph_wrap.system.text import cut

_TAKE_AWAY = b"\r\x1b[K"
_WIDTH = 80  # columns, if the terminal does not report its width


class StatusLine:
    """See the module.

    Arguments:
        descriptor: the terminal.
        drawn: the line may be drawn; otherwise the object only tracks the cursor.

    """

    def __init__(self, descriptor: int, *, drawn: bool) -> None:
        self._descriptor = descriptor
        self._may_draw = drawn
        self._drawn = b""
        self._at_start = True

    def is_on(self, descriptor: int) -> bool:
        """Return whether a descriptor writes to this terminal, as far as we can find out."""
        try:
            return os.isatty(descriptor) and os.path.samestat(
                os.fstat(descriptor), os.fstat(self._descriptor)
            )
        except OSError:
            return False

    def show(self, words: str) -> None:
        """Draw a text, if the line is free now; an empty text removes the line.

        Arguments:
            words: printable characters only.

        """
        words = cut(words, self._columns() - 1) if words and self._may_draw else ""
        line = words.encode(errors="backslashreplace")
        if line == self._drawn or (not self._drawn and not self._at_start):
            return
        if line and not self._is_ours():
            return
        if self._write(_TAKE_AWAY + line):
            self._drawn = line

    def taken_away(self) -> bytes:
        """Return the bytes that remove the line; write them before any other output."""
        drawn, self._drawn = self._drawn, b""
        return _TAKE_AWAY if drawn else b""

    def begun(self) -> bytes:
        """Return these bytes, and a newline if another writer's line is unfinished."""
        away = self.taken_away()
        return away if self._at_start else away + b"\n"

    def wrote(self, words: bytes) -> None:
        """Record output to the terminal."""
        if words:
            self._at_start = words.endswith(b"\n")

    def set_window_title(self, words: str) -> None:
        """Set the title of the terminal's window; an empty one clears it.

        Arguments:
            words: printable characters only.

        """
        if self._is_ours():
            self._write(f"\x1b]2;{words}\x07".encode(errors="backslashreplace"))

    def notify(self, words: str, *, in_tmux: bool) -> None:
        """Ring the bell, and ask the terminal for a notification: OSC 9 (iTerm2) and OSC 777 (urxvt).

        Arguments:
            words: printable characters only.
            in_tmux: tmux passes them on only in an envelope (tmux(1), allow-passthrough).

        """
        if not self._is_ours():
            return
        body = words.replace(";", ",")
        for sequence in (f"\x1b]9;{body}\x07", f"\x1b]777;notify;ralph-wrap;{body}\x07"):
            if in_tmux:
                sequence = f"\x1bPtmux;{sequence.replace(chr(27), chr(27) * 2)}\x1b\\"  # noqa: PLW2901
            self._write(sequence.encode(errors="backslashreplace"))
        self._write(b"\x07")

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
        """Write without blocking; return whether the line was written."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        with contextlib.suppress(OSError):
            return bool(poll.poll(0)) and bool(os.write(self._descriptor, line))
        return False
