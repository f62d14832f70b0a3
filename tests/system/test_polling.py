"""The wait between two looks at a file."""

from __future__ import annotations

import os

from ralph_wrap.system.polling import reader_stays
from tests.support.wait import CAP


def test_a_wait_ends_when_the_reader_goes_away() -> None:
    """Without anything written to it, and not only with its time, which would be the end of this test."""
    reading, writing = os.pipe()
    assert reader_stays(writing, 0)
    os.close(reading)
    assert not reader_stays(writing, 10 * CAP)
    os.close(writing)
