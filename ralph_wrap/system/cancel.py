"""Whether work is to end early, and how much time it still has."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol


class Hurry(Protocol):
    """Something that can take away the grace of work that has to end."""

    @property
    def hurried(self) -> bool:
        """Whether there is no time for any grace."""


class CancelToken:
    """The signals that have asked for an early end so far; a new token has none.

    Signal handlers write to it, so it holds plain values: a lock that a handler takes would block
    the next handler.

    Attributes:
        first: the number of the first signal, ``None`` before it.
        count: the number of signals.
        terms: the number of SIGTERMs. PID 1 sends the second one when the container's time runs out.

    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.count = 0
        self.terms = 0

    def record(self, number: int) -> None:
        """Count one more signal."""
        self.count += 1
        self.terms += number == signal.SIGTERM
        if self.first is None:
            self.first = number

    @property
    def requested(self) -> bool:
        """Whether a signal has come."""
        return self.count > 0

    @property
    def hurried(self) -> bool:
        """Whether a second signal has come: there is no time for any grace."""
        return self.count > 1

    @property
    def out_of_time(self) -> bool:
        """Whether the container's time has run out: the next start does the rest."""
        return self.terms > 1


class Interruption(CancelToken):
    """The token of work that a signal ends, and during a ``with`` block something else, too.

    Arguments:
        signals: the signals so far.

    """

    def __init__(self, signals: CancelToken) -> None:
        super().__init__()
        self._signals = signals
        self._reason: Callable[[], bool] = lambda: False

    @property
    def requested(self) -> bool:
        """Whether the work is to end."""
        return self._signals.requested or self._reason()

    @contextlib.contextmanager
    def when(self, reason: Callable[[], bool]) -> Iterator[None]:
        """End the work within the ``with`` block as soon as a function returns true; it is asked often."""
        before, self._reason = self._reason, reason
        try:
            yield
        finally:
            self._reason = before


class FirstSignal(NamedTuple):
    """The hurry of work that gets no grace after its first signal."""

    cancel: CancelToken

    @property
    def hurried(self) -> bool:
        """Whether a signal has come."""
        return self.cancel.requested


NEVER = CancelToken()
"""The token of work that nothing cancels."""
