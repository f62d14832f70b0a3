"""How long the claim of a session has not moved, as this machine has watched it.

A fetch notes which claim it found, and when. If a later fetch finds the same claim after several beats, then
the session is dead. Only the clock of this machine takes part, since its start.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from ralph_wrap.state.record import SessionRecord, UnreadableRecord
from ralph_wrap.system import liveness

BEATS = 3
"""A session whose claim does not move for this number of beats is dead."""

SILENT = "dead"
"""The state of a session whose claim says that it runs, but does not move."""

WATCHED = "watched"
"""The field of a fetched record that holds a :class:`Watch`."""


class Watch(NamedTuple):
    """A claim, and when this machine saw it first.

    Attributes:
        claim: object id.
        boot_id: of the kernel whose clock counts.
        since: seconds of its clock, which no user sets.

    """

    claim: str
    boot_id: str
    since: float

    def has_passed(self, seconds: float) -> bool:
        """Return whether this number of seconds has passed since then."""
        return _now() - self.since >= seconds


def watched(record: SessionRecord | UnreadableRecord | None, claim: str) -> Watch:
    """Return since when a claim is known: from the record of an earlier fetch, or from now on.

    Arguments:
        claim: object id.

    """
    fields = record.extra.get(WATCHED) if isinstance(record, SessionRecord) else None
    if isinstance(fields, list) and fields[:2] == [claim, liveness.boot_id()]:
        since = fields[2] if len(fields) == len(Watch._fields) else None
        if isinstance(since, float) and since <= _now():
            return Watch(claim, liveness.boot_id(), since)
    return Watch(claim, liveness.boot_id(), _now())


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
