"""What origin refuses, such as a protected name or a large file. The hub tries again in growing waits.

A connection that is lost during a push is no refusal. Git then prints no line for a ref, or says that the
remote reported nothing of it.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.git import decode_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ralph_wrap.system.process import CompletedCommand

_MOVED = "(stale info)"  # the lease of a ref is on another object than the remote has
_LOST = "[remote failure]"
# An HTTP server refuses the whole push, for example for its size; but not if it is overloaded.
_HTTP = re.compile(rb"^error: RPC failed; HTTP 4(?!08|29)\d\d ", re.MULTILINE)
_LONGEST_WAIT = 300.0  # seconds


class _Refusal(NamedTuple):
    reason: str
    wait: float
    until: float


class Refusals:
    """The refs that origin refuses.

    Arguments:
        interval: seconds between two rounds. The first wait is twice as long.

    """

    def __init__(self, interval: float) -> None:
        self._first = 2 * interval
        self._refused: dict[str, _Refusal] = {}

    def __contains__(self, ref: str) -> bool:
        return ref in self._refused

    def is_waiting(self, ref: str) -> bool:
        """Return whether it is too early to push a ref again."""
        return ref in self._refused and time.monotonic() < self._refused[ref].until

    def add(self, ref: str, reason: str) -> bool:
        """Take in that origin has refused a ref; return whether the reason is new."""
        before = self._refused.get(ref)
        wait = self._first if before is None else max(self._first, min(2 * before.wait, _LONGEST_WAIT))
        self._refused[ref] = _Refusal(reason, wait, time.monotonic() + wait)
        return before is None or before.reason != reason

    def keep(self, refs: Collection[str]) -> None:
        """Forget all refs but these."""
        self._refused = {ref: refusal for ref, refusal in self._refused.items() if ref in refs}


class PushAnswer:
    """What origin has said of the refs of one push (git-push(1), *Output*).

    Attributes:
        taken: refs that it has taken.
        moved: refs that it has not as the lease says.
        refused: refs that it does not want.
        is_lost: it did not say of each ref what becomes of it.

    """

    def __init__(self, completed: CompletedCommand, refs: Collection[str]) -> None:
        rows = dict(_rows(completed))
        self.taken = {ref for ref, reason in rows.items() if not reason}
        self.moved = {ref for ref, reason in rows.items() if reason.endswith(_MOVED)}
        failed = {ref for ref, reason in rows.items() if reason.startswith(_LOST)}
        self.refused = sorted(rows.keys() - self.taken - self.moved - failed)
        if not rows and _HTTP.search(completed.stderr):
            self.refused = sorted(refs)
        self.is_lost = completed.status != 0 and not (self.refused or self.moved)


def _rows(completed: CompletedCommand) -> Iterator[tuple[str, str]]:
    """Yield each ref of a push, and why origin has not taken it; empty if it has."""
    for line in decode_lines(completed.stdout):
        flag, tab, rest = line.partition("\t")
        refs, _, summary = rest.partition("\t")
        if tab and ":" in refs:
            yield refs.rpartition(":")[2], summary if flag == "!" else ""
