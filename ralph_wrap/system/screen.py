"""Leave a terminal as it was found: on its normal screen, with a cursor.

A program that is killed cannot do that itself. The control sequences are those of xterm, which other
terminals follow (https://invisible-island.net/xterm/ctlseqs/ctlseqs.html, *DEC Private Mode Set*).
"""

from __future__ import annotations

import re

_SWITCH = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")
_BEGINNING = re.compile(rb"\x1b(?:\[(?:\?[0-9;]*)?)?\Z")  # of a switch that the next piece continues
_LONGEST = 64  # bytes of such a beginning

_CURSOR = b"25"
_ALTERNATE_SCREENS = (b"47", b"1047", b"1049")
# A terminal that is on its normal screen moves the cursor to where it was saved, so it is saved here.
_LEAVE = b"\x1b7\x1b[?%sl"
_SHOW_CURSOR = b"\x1b[?25h"

RESTORED = _LEAVE % b"1049" + _SHOW_CURSOR
"""What leaves the alternate screen and shows the cursor, and changes nothing else."""


class ScreenModes:
    """Follows what is written to a terminal, and knows how to take its switches back."""

    def __init__(self) -> None:
        self._screen = b""  # the mode of the alternate screen that is shown
        self._is_cursor_hidden = False
        self._beginning = b""

    def follow(self, words: bytes) -> None:
        """Read the next piece of what is written."""
        words = self._beginning + words
        for switch in _SWITCH.finditer(words):
            is_set = switch[2] == b"h"
            for mode in switch[1].split(b";"):
                if mode in _ALTERNATE_SCREENS:
                    self._screen = mode if is_set else b""
                elif mode == _CURSOR:
                    self._is_cursor_hidden = not is_set
        beginning = _BEGINNING.search(words[-_LONGEST:])
        self._beginning = beginning[0] if beginning else b""

    def taken_back(self) -> bytes:
        """Return the bytes that take the switches back; empty if there are none."""
        words = _LEAVE % self._screen if self._screen else b""
        if self._is_cursor_hidden:
            words += _SHOW_CURSOR
        self._screen, self._is_cursor_hidden, self._beginning = b"", False, b""
        return words
