"""Watch the refs of a run: the request to stop a session, the usage limit of its account, and its claim."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ralph_wrap.commands.fetch.watch import BEATS
from ralph_wrap.git import decode_lines
from ralph_wrap.git.remote import start_remote_listing
from ralph_wrap.interfaces.fleet.index import lacks_work
from ralph_wrap.interfaces.fleet.limits.background import Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ralph_wrap.interfaces.fleet.limits.background import Conversation
    from ralph_wrap.interfaces.fleet.limits.usage_limit import RunUsageLimits
    from ralph_wrap.interfaces.fleet.remote import FleetRemote
    from ralph_wrap.state.remote_claim import RemoteClaim
    from ralph_wrap.system.log import Log

_EVERY = 30.0  # seconds between two looks
_AGAIN = 5.0  # seconds until a limit is pushed again


class RunWatch:
    """Looks at the refs of the run now and then, and pushes a usage limit that the session has found.

    Arguments:
        ref: asks the session to stop.
        stop: called when the ref is there, at each look.
        limits: of the accounts.

    """

    def __init__(
        self, remote: FleetRemote, ref: str, stop: Callable[[], None], limits: RunUsageLimits
    ) -> None:
        self._remote = remote
        self._ref = ref
        self._stop = stop
        self._limits = limits
        self._look = Timer(_EVERY)
        self._push = Timer(0)

    def begin(self) -> Conversation | None:
        """Begin a conversation that is due."""
        if self._push.is_due and (found := self._limits.found()):
            self._push.start(_AGAIN)
            return self._limits.push_beside(found)
        if self._look.is_due:
            self._look.start()
            return self._list()
        return None

    def _list(self) -> Conversation:
        git, name = self._remote.git, self._remote.name
        completed = yield start_remote_listing(git, name, self._ref, self._limits.pattern)
        if completed.status != 0:
            return
        rows = (row.split("\t", 1) for row in decode_lines(completed.stdout))
        found = {ref: oid for oid, ref in rows}
        if found.pop(self._ref, None):
            self._stop()
        if self._limits.is_news(found):
            yield from self._limits.fetch_beside(found)


class HolderWatch:
    """Watches the worker that has the only copy of some work: while it tries to push it, its claim moves."""

    def __init__(self, log: Log) -> None:
        self._log = log
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
            self._log.warning(
                "fleet.waits_for_work",
                f"{claim.node} has work that the remote lacks: {claim.incomplete}",
                "this worker waits while that one tries to push it",
            )
        if oid != self._claim:
            self._claim, self._since = oid, time.monotonic()
        return time.monotonic() < self._since + BEATS * claim.beat
