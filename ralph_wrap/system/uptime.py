"""A clock that nobody sets: the time since the start of the machine, its sleep included."""

from __future__ import annotations

import time


def uptime() -> float:
    """Return the seconds since the machine has started; processes of one boot can compare them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
