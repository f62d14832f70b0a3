"""Lease money of a run for one session after another, so that all sessions keep ``--fleet-max-cost``.

A session spends only what its worker has leased. The worker leases before the start, leases more while the
session works, and gives the rest back at the end. If the worker dies, its lease counts as spent. The claim of
the session proves less, if it says that the session has ended: then the next worker gives the rest back.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.config.allowance import Allowance
from ralph_wrap.errors import RalphError
from ralph_wrap.git import list_refs, store_blob
from ralph_wrap.git.remote import RemoteChange, start_atomic_push, start_fetch
from ralph_wrap.git.safe.batch import read_blobs
from ralph_wrap.interfaces.fleet.limits.background import Timer
from ralph_wrap.interfaces.fleet.limits.ledger import DOLLAR, Lease, Ledger, decode_ledger
from ralph_wrap.interfaces.fleet.refs import cost_ref
from ralph_wrap.state import remote_claim
from ralph_wrap.state.remote_refs import tracking

if TYPE_CHECKING:
    from ralph_wrap.interfaces.fleet.limits.background import Conversation
    from ralph_wrap.interfaces.fleet.remote import FleetRemote
    from ralph_wrap.interfaces.fleet.spec import FleetSpec
    from ralph_wrap.state.remote_claim import RemoteClaim

_PARTS = 4  # slices for each session that runs at the same time
_LEAST = 10  # a lease has at least this part of a slice
_AGAIN = 2.0  # seconds until the next attempt
_KEY = 8  # bytes


class _OpenLease(NamedTuple):
    """The lease of the session that runs; *pending* replaces it, once a push has arrived."""

    key: str
    lease: Lease
    allowance: Allowance
    pending: Lease | None = None


class RunBudget:
    """The money of a run, as the worker of one index leases it.

    Arguments:
        remote: has the ledger.
        spec: the run, with its limit.
        index: of the worker.

    """

    def __init__(self, remote: FleetRemote, spec: FleetSpec, index: int) -> None:
        self._remote = remote
        self._ref = cost_ref(spec.run)
        self._index = index
        self._limit = math.floor(spec.max_cost * DOLLAR)
        self._slice = max(1, self._limit // (_PARTS * spec.parallel))
        self._seen = Ledger()
        self._open: _OpenLease | None = None
        self._timer = Timer(0)

    def open(self, claim: RemoteClaim | None) -> Allowance | None:
        """Lease the first slice for a session; ``None`` if nothing is left, or the run has no limit.

        Arguments:
            claim: the claim of the earlier session; ``None`` if there was none.

        Raises:
            RalphError: the ledger is damaged, or was set back.
            UnreachableError: the remote does not answer.
            InterruptedWorkError: no time is left.

        """
        if not self._limit:
            return None
        lease = Lease(self._index, claim.epoch + 1 if claim else 1, 0)
        key = os.urandom(_KEY).hex()
        while True:
            oid, ledger = self._read()
            before, ledger = ledger, self._settled(ledger, claim)
            amount = self._amount(ledger, self._slice)
            if amount:
                ledger = ledger.with_more(key, lease._replace(amount=amount))
            if ledger == before or self._change(oid, ledger):
                break
        if key not in ledger.leases:
            return None
        allowance = Allowance(self._slice / DOLLAR)
        allowance.grant(ledger.leases[key].amount / DOLLAR)
        self._open = _OpenLease(key, ledger.leases[key], allowance)
        return allowance

    def close(self) -> None:
        """Give back what the session has not used; errors are those of :meth:`open`."""
        while self._open is not None:
            oid, ledger = self._read()
            used = math.ceil(self._open.allowance.spent * DOLLAR)
            # Without its lease, another worker has taken the session over: all of it counts as spent.
            if self._open.key not in ledger.leases or self._change(oid, ledger.without(self._open.key, used)):
                self._open = None

    def more(self) -> Conversation | None:
        """Begin to lease more, if the session needs it soon."""
        opened = self._open
        if opened is None or opened.allowance.is_closed or not self._timer.is_due:
            return None
        return self._lease_more(opened) if opened.allowance.left < opened.allowance.wanted else None

    def _lease_more(self, opened: _OpenLease) -> Conversation:
        self._timer.start(_AGAIN)
        git, allowance = self._remote.git, opened.allowance
        tracked = tracking(self._remote.name, self._ref)
        completed = yield start_fetch(git, self._remote.name, [f"+{self._ref}:{tracked}"])
        if completed.status != 0:
            return
        oid = list_refs(git, tracked).get(tracked, "")
        try:
            ledger = self._checked(read_blobs(git, [oid]).get(oid, b"") if oid else b"")
        except RalphError:
            allowance.close()  # the next start of a session says why
            return
        lease = ledger.leases.get(opened.key)
        if lease is not None and lease == opened.pending:  # its push arrived, and the answer was lost
            self._has_leased(opened)
            return
        amount = self._amount(ledger, math.ceil((allowance.wanted - allowance.left) * DOLLAR))
        if not amount or lease != opened.lease:
            allowance.close()
            return
        ledger = ledger.with_more(opened.key, lease._replace(amount=amount))
        self._open = opened = opened._replace(pending=ledger.leases[opened.key])
        change = RemoteChange(self._ref, oid, store_blob(git, ledger.encode()))
        completed = yield start_atomic_push(git, self._remote.name, [change])
        if completed.status == 0:
            self._seen = ledger
            self._has_leased(opened)

    def _has_leased(self, opened: _OpenLease) -> None:
        if opened.pending is not None:
            opened.allowance.grant((opened.pending.amount - opened.lease.amount) / DOLLAR)
            self._open = opened._replace(lease=opened.pending, pending=None)
            self._timer.start(0)

    def _amount(self, ledger: Ledger, wanted: int) -> int:
        """Return how much to lease; 0 if less than a part of a slice is left."""
        left = ledger.left(self._limit)
        return 0 if left < max(1, self._slice // _LEAST) else min(left, max(wanted, self._slice))

    def _settled(self, ledger: Ledger, claim: RemoteClaim | None) -> Ledger:
        """Return the ledger without the leases of earlier sessions of the index.

        A session that is not known to have ended keeps its lease: its worker may be alive.
        """
        for key, lease in ledger.leases.items():
            if lease.number != self._index or claim is None or lease.epoch > claim.epoch:
                continue
            if lease.epoch < claim.epoch:
                ledger = ledger.without(key, lease.amount)
            elif claim.state != remote_claim.RUNNING:
                ledger = ledger.without(key, _used(claim, lease))
        return ledger

    def _read(self) -> tuple[str, Ledger]:
        while True:
            found = self._remote.listed(self._ref)
            if self._ref not in found:
                raise RalphError(f"the remote lacks {self._ref}, which counts the cost of the run")
            content = self._remote.blobs(found).get(self._ref)
            if content is not None:  # otherwise a worker has moved it between the two calls
                return found[self._ref], self._checked(content)

    def _checked(self, content: bytes) -> Ledger:
        try:
            ledger = decode_ledger(content)
        except ValueError as error:
            raise RalphError(f"{self._ref} on the remote cannot be read: {error}") from None
        if not ledger.is_after(self._seen):
            raise RalphError(f"another program has set {self._ref} on the remote back")
        self._seen = ledger
        return ledger

    def _change(self, oid: str, ledger: Ledger) -> bool:
        blob = store_blob(self._remote.git, ledger.encode())
        if not self._remote.change([RemoteChange(self._ref, oid, blob)]):
            return False
        self._seen = ledger
        return True


def _used(claim: RemoteClaim, lease: Lease) -> int:
    """Return what a session has used, as its claim proves; all of it if the claim does not."""
    cost = claim.cost_usd
    if cost is None or not math.isfinite(cost) or cost < 0:
        return lease.amount
    return math.ceil(cost * DOLLAR)
