"""The time that a worker has left after a signal."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import TypeVar

from ralph_wrap.errors import UnreachableError
from ralph_wrap.interfaces.fleet.remote import InterruptedWorkError
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.log import get_logger

log = get_logger()

_T = TypeVar("_T")

RESERVE = 5.0
"""Seconds before the end of the grace at which the session must have ended."""

_LONGEST_WAIT = 30.0  # seconds between two attempts to reach the remote
_LOOK = 0.1
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


class RemoteRetries:
    """The patience of a worker with its remote.

    Arguments:
        grace: of the worker.

    Attributes:
        is_ending: there is work to push, so after a signal the grace period is for that.

    """

    def __init__(self, grace: GracePeriod) -> None:
        self.is_ending = False
        self._grace = grace

    def repeat(self, action: Callable[[], _T]) -> _T:
        """Do something with the remote, and try again with growing waits while it does not answer.

        Raises:
            InterruptedWorkError: no time is left.

        """
        wait = 1.0
        while True:
            try:
                return action()
            except UnreachableError as error:
                log.warning("fleet.unreachable", error.message, f"the next attempt is in {wait:.0f} s")
            self.pause(wait * random.uniform(0.5, 1.5))  # noqa: S311 -- jitter
            wait = min(wait * 2, _LONGEST_WAIT)

    def pause(self, seconds: float) -> None:
        """Wait; errors are those of :meth:`repeat`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.is_over():
                raise InterruptedWorkError("a signal ended the worker")
            time.sleep(min(_LOOK, seconds))

    def is_over(self) -> bool:
        """Return whether no time is left for the remote."""
        return self._grace.is_over if self.is_ending else self._grace.has_begun
