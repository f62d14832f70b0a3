"""What a program has switched on a terminal is taken back."""

from __future__ import annotations

import pytest

from ralph_wrap.system.screen import ScreenModes

ON = b"\x1b[?1049h"
OFF = b"\x1b[?1049l"
HIDE = b"\x1b[?25l"
SHOW = b"\x1b[?25h"
LEAVE = b"\x1b7" + OFF
"""The cursor is saved first: on the normal screen it would move otherwise."""


@pytest.mark.parametrize(
    ("written", "back"),
    [
        (b"text \x1b[31mred\x1b[0m", b""),
        (ON, LEAVE),
        (HIDE, SHOW),
        (ON + HIDE + b"text", LEAVE + SHOW),
        (b"\x1b[?25;1049h", LEAVE),
        (b"\x1b[?1049;25l", SHOW),
        (b"\x1b[?47h", b"\x1b7\x1b[?47l"),
        (ON + HIDE + SHOW + OFF, b""),
        (ON + OFF + ON, LEAVE),
        (b"\x1b[?2004h\x1b[25l\x1b[?1l", b""),
        (b"\x1b[?" + b"1" * 100_000 + b"h", b""),
    ],
)
def test_what_takes_switches_back(written: bytes, back: bytes) -> None:
    """Only what is on is taken back, however the output is cut into pieces, and only once."""
    for size in (1, 3, len(written)):
        modes = ScreenModes()
        for start in range(0, len(written), size):
            modes.follow(written[start : start + size])
        assert (modes.taken_back(), modes.taken_back()) == (back, b""), size
