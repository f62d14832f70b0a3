"""What a run has leased of its ``--fleet-max-cost``: a blob that moves only by compare-and-swap.

The limit itself is in the spec of the run, which the engine pins. *granted* and *returned* only grow, so each
worker notices if another program sets them back. Amounts are whole millionths of a US dollar: sums are exact.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.system.document import DocumentFormat

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

DOLLAR = 1_000_000
"""The millionths of a dollar."""

_FORMAT = DocumentFormat(version=1, largest=4 << 20)
_NONCE = 16  # bytes
_MOST = 10**15  # a billion dollars


class Lease(NamedTuple):
    """The money that one session of a run may spend, and that counts as spent until it is given back.

    Attributes:
        number: index of the session in the run.
        epoch: of the claim of the session.
        amount: in millionths of a dollar.

    """

    number: int
    epoch: int
    amount: int


class Ledger(NamedTuple):
    """All leases of a run.

    Attributes:
        granted: the sum of all leases so far.
        returned: the sum of what was given back.
        leases: those of sessions that have not given anything back, by a random key.

    """

    granted: int = 0
    returned: int = 0
    leases: Mapping[str, Lease] = {}

    @property
    def spent(self) -> int:
        """The part of the leases that no session can give back any more."""
        return self.granted - self.returned - self.leased

    @property
    def leased(self) -> int:
        """The sum of the leases that are open."""
        return sum(lease.amount for lease in self.leases.values())

    def left(self, limit: int) -> int:
        """Return what can be leased."""
        return limit - self.granted + self.returned

    def with_more(self, key: str, lease: Lease) -> Ledger:
        """Return the ledger with a new lease, or with more of one that exists."""
        before = self.leases[key].amount if key in self.leases else 0
        leases = {**self.leases, key: lease._replace(amount=before + lease.amount)}
        return self._replace(granted=self.granted + lease.amount, leases=leases)

    def without(self, key: str, used: int) -> Ledger:
        """Return the ledger after the end of a lease, of which a part was used."""
        back = max(0, self.leases[key].amount - used)
        leases = {name: lease for name, lease in self.leases.items() if name != key}
        return self._replace(returned=self.returned + back, leases=leases)

    def is_after(self, earlier: Ledger) -> bool:
        """Return whether it can follow an earlier one."""
        return self.granted >= earlier.granted and self.returned >= earlier.returned

    def encode(self) -> bytes:
        """Return the content of its blob. A nonce makes it unique, as that of an index."""
        leases = {key: lease._asdict() for key, lease in self.leases.items()}
        return _FORMAT.encode(self._asdict() | {"leases": leases, "nonce": os.urandom(_NONCE).hex()})


def decode_ledger(content: bytes) -> Ledger:
    """Return the ledger in a blob.

    Raises:
        ValueError: it is damaged, forged, or of another version.

    """
    return _FORMAT.decode(content, _checked)


def _checked(fields: dict[str, Any]) -> Ledger:
    leases = {
        str(key): Lease(_count(lease["number"]), _count(lease["epoch"]), _count(lease["amount"]))
        for key, lease in fields["leases"].items()
    }
    ledger = Ledger(_count(fields["granted"]), _count(fields["returned"]), leases)
    if ledger.spent < 0:
        raise ValueError("more is given back or leased than was granted")
    return ledger


def _count(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("a number of the wrong type")
    if not 0 <= value <= _MOST:
        raise ValueError("a number out of range")
    return value
