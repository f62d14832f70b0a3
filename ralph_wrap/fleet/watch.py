"""Watch the refs of a run beside a session: the request to stop it, and the usage limit of its account."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.fleet.limits.background import Timer
from ralph_wrap.git import decode_lines, start_remote_listing

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph_wrap.fleet.limits.background import Conversation
    from ralph_wrap.fleet.limits.usage_limit import RunUsageLimits
    from ralph_wrap.fleet.remote import FleetRemote

_EVERY = 30.0  # seconds between two looks
_AGAIN = 5.0  # seconds until a limit is pushed again


class RunWatch:
    """Looks at the refs of the run now and then, and pushes a usage limit that the session has found.

    Arguments:
        remote: the remote.
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
