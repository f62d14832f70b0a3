"""Watch the refs of a run beside a session: the request to stop it, and the claim of another worker."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Collection
from typing import Self

from ralph_wrap.commands.fetch.watch import BEATS
from ralph_wrap.errors import RalphError
from ralph_wrap.git.remote import start_remote_listing
from ralph_wrap.interfaces.fleet.index import lacks_work
from ralph_wrap.interfaces.fleet.remote import FleetRemote
from ralph_wrap.state.remote_claim import RemoteClaim
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.process import RunningCommand

log = get_logger()

_INTERVAL = 30.0  # seconds between two looks
_GLANCE = 0.01  # seconds; with 0 Popen.communicate never notices the end of a command


class StopWatch:
    """Looks now and then whether the remote asks the session to stop, and never waits for the answer.

    Arguments:
        ref: asks the session to stop.
        stop: called when the ref is there, at each look.

    """

    def __init__(self, remote: FleetRemote, ref: str, stop: Callable[[], None]) -> None:
        self._remote = remote
        self._ref = ref
        self._stop = stop
        self._running: RunningCommand | None = None
        self._due = 0.0
        self._wait()

    def look(self) -> None:
        """Start a look that is due, or read the answer of the one that runs."""
        if self._running is not None:
            if self._running.ended(_GLANCE):
                self._read(self._running)
            return
        if time.monotonic() < self._due:
            return
        self._wait()
        # An agent can damage the repository for a moment, and a disk can be full. Neither may end the worker,
        # because its session would go on without it: the next look tries again.
        with contextlib.suppress(RalphError, OSError):
            self._running = start_remote_listing(self._remote.git, self._remote.name, self._ref)

    def _read(self, running: RunningCommand) -> None:
        self._running = None
        with running:
            completed = running.wait()
        if completed.status == 0 and completed.stdout:
            self._stop()

    def _wait(self) -> None:
        """Set the time of the next look, with jitter: the workers must not ask all at once."""
        self._due = time.monotonic() + _INTERVAL * random.uniform(0.8, 1.2)  # noqa: S311 -- jitter

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            with self._running:
                pass


class HolderWatch:
    """Watches the worker that has the only copy of some work: while it tries to push it, its claim moves."""

    def __init__(self) -> None:
        self._claim = ""
        self._since = 0.0

    def must_wait(self, claim: RemoteClaim | None, oid: str, ours: Collection[str]) -> bool:
        """Return whether another worker may still push what the remote lacks of an ended session.

        Arguments:
            claim: on the session; ``None`` if there is none.
            oid: object id of the claim.
            ours: ids of the sessions that ran in this worker.

        """
        if claim is None or not lacks_work(claim) or claim.session in ours:
            return False
        if not self._claim:
            log.warning(
                "fleet.waits_for_work",
                f"{claim.node} has work that the remote lacks: {claim.incomplete}",
                "this worker waits while that one tries to push it",
            )
        if oid != self._claim:
            self._claim, self._since = oid, time.monotonic()
        return time.monotonic() < self._since + BEATS * claim.beat
