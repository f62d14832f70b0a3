"""The money that a session may spend now, if it shares a limit with other sessions.

The process that started the session leases more while the session works. Both see the numbers in memory that
they share. The agent is another program, and cannot change them.
"""

from __future__ import annotations

import mmap
import struct

_NUMBERS = struct.Struct("=d")
_SIZE = _NUMBERS.size
_GRANTED, _SPENT, _WANTED, _CLOSED = range(4)


class Allowance:
    """Money in US dollars. A process that was forked after the construction sees each change.

    Arguments:
        wanted: the money that the session wants to have before an iteration.

    """

    def __init__(self, wanted: float) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._put(_WANTED, wanted)

    @property
    def spent(self) -> float:
        """The cost of the session so far."""
        return self._get(_SPENT)

    @property
    def wanted(self) -> float:
        """The money that the session wants to have before an iteration."""
        return self._get(_WANTED)

    @property
    def left(self) -> float:
        """The money that the session may spend now; negative if it has spent too much."""
        return self._get(_GRANTED) - self._get(_SPENT)

    @property
    def is_closed(self) -> bool:
        """Whether the session gets no more money."""
        return self._get(_CLOSED) != 0.0

    def grant(self, dollars: float) -> None:
        """Let the session spend more. Only the process that leases the money calls this."""
        self._put(_GRANTED, self._get(_GRANTED) + dollars)

    def close(self) -> None:
        """Note that there is no more money. Only the process that leases it calls this."""
        self._put(_CLOSED, 1.0)

    def spend(self, total: float) -> None:
        """Note the cost of the session so far; only the session calls this."""
        self._put(_SPENT, max(total, self._get(_SPENT)))

    def want_more(self) -> None:
        """Note that an iteration needed more than it had: the next one gets twice the money."""
        self._put(_WANTED, 2 * self._get(_WANTED))

    def _get(self, number: int) -> float:
        dollars: float = _NUMBERS.unpack_from(self._memory, number * _SIZE)[0]
        return dollars

    def _put(self, number: int, dollars: float) -> None:
        _NUMBERS.pack_into(self._memory, number * _SIZE, dollars)
