"""Watch the remote for the request to stop a session, beside the session."""

from __future__ import annotations

import contextlib
import random
import time
from typing import TYPE_CHECKING, Self

from ralph_wrap.git import start_remote_listing

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph_wrap.fleet.remote import FleetRemote
    from ralph_wrap.system.process import RunningCommand

_EVERY = 30.0  # seconds between two looks
_GLANCE = 0.01  # seconds; with 0 Popen.communicate never notices the end of a command


class StopWatch:
    """Looks for one ref now and then, one command at a time; never waits.

    Arguments:
        remote: the remote.
        ref: asks the session to stop.
        stop: called when the ref is there, at each look.

    """

    def __init__(self, remote: FleetRemote, ref: str, stop: Callable[[], None]) -> None:
        self._remote = remote
        self._ref = ref
        self._stop = stop
        self._running: RunningCommand | None = None
        self._due = time.monotonic() + _wait()

    def look(self) -> None:
        """Do what is due."""
        if self._running is None:
            if time.monotonic() >= self._due:
                self._due = time.monotonic() + _wait()
                with contextlib.suppress(OSError):
                    self._running = start_remote_listing(self._remote.git, self._remote.name, self._ref)
            return
        if self._running.ended(_GLANCE):
            with self._running as running:
                found = running.wait()
            self._running = None
            if found.status == 0 and found.stdout:
                self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            with self._running:
                pass


def _wait() -> float:
    """Return the seconds until the next look, with jitter: the workers must not ask all at once."""
    return _EVERY * random.uniform(0.8, 1.2)  # noqa: S311
