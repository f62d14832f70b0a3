"""The time that a worker has left after a signal."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ralph_wrap.system.cancel import CancelToken

RESERVE = 5.0
"""Seconds before the end of the grace at which the session must have ended."""

_LAST = 1.0  # seconds before the end of the grace at which the worker ends


class GracePeriod:
    """The grace period of a worker; it begins when the worker sees the first signal.

    Arguments:
        cancel: the signals so far.
        seconds: between SIGTERM and SIGKILL.

    """

    def __init__(self, cancel: CancelToken, seconds: float) -> None:
        self._cancel = cancel
        self._seconds = seconds
        self._since: float | None = None

    @property
    def has_begun(self) -> bool:
        """Whether a signal has come."""
        if self._cancel.requested and self._since is None:
            self._since = time.monotonic()
        return self._cancel.requested

    @property
    def is_over(self) -> bool:
        """Whether the worker has no time left for the remote."""
        return self.left < _LAST

    @property
    def session_must_end(self) -> bool:
        """Whether the session has no time left for the remote."""
        return self.left < RESERVE

    @property
    def left(self) -> float:
        """Seconds until SIGKILL; infinite before the first signal."""
        if not self.has_begun or self._since is None:
            return math.inf
        return self._since + self._seconds - time.monotonic()

    @property
    def exit_status(self) -> int:
        """The exit status of a worker that a signal has ended."""
        return 128 + (self._cancel.first or 0)
