"""Share the usage limit of an account with all workers of a run.

A session writes a limit that it finds into ``.ralph/run/limits/`` of its clone, and waits for a limit that it
finds there. The worker carries these files to a ref of the run and back, a ref for each account. It adds a
random delay, so that the sessions of a run do not start all at once after the limit.

Everybody with access to the remote can write such a ref. So a time counts only if it is at most a day away.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from typing import TYPE_CHECKING

from ralph_wrap.git import list_refs, store_blob
from ralph_wrap.git.remote import RemoteChange, start_atomic_push, start_fetch
from ralph_wrap.git.safe.batch import read_blobs
from ralph_wrap.interfaces.fleet.refs import limit_ref
from ralph_wrap.loop import usage_limit
from ralph_wrap.state.remote_refs import tracking
from ralph_wrap.system.document import DocumentFormat

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ralph_wrap.interfaces.fleet.limits.background import Conversation
    from ralph_wrap.interfaces.fleet.remote import FleetRemote
    from ralph_wrap.interfaces.fleet.spec import FleetSpec

_FORMAT = DocumentFormat(version=1, largest=4096)
_NONCE = 16  # bytes
_ACCOUNT = re.compile(r"[a-z0-9_-]{1,64}", re.ASCII)
_SAME = 60.0  # seconds; two sessions that find one limit do not compute the same time
_LONGEST_SPREAD = 300.0  # seconds


class RunUsageLimits:
    """The usage limits of the accounts that a run works with.

    Arguments:
        remote: has a ref for each account.
        spec: the run.
        directory: the shared files of the clone.

    """

    def __init__(self, remote: FleetRemote, spec: FleetSpec, directory: Path) -> None:
        self._remote = remote
        self._prefix = limit_ref(spec.run, "")
        self._directory = directory
        self._spread = min(spec.stagger * spec.parallel, _LONGEST_SPREAD)
        self._oids: dict[str, str] = {}
        self._known: dict[str, float] = {}
        self._written: dict[str, float] = {}

    @property
    def pattern(self) -> str:
        """Matches the refs of all accounts."""
        return f"{self._prefix}*"

    def fetch(self) -> None:
        """Take over what the remote has; errors are those of :meth:`FleetRemote.listed`."""
        found = self._remote.listed(self.pattern)
        if self.is_news(found):
            self._remote.fetch(found)
            self._take_over(found)

    def is_news(self, found: Mapping[str, str]) -> bool:
        """Return whether some refs are not known here.

        Arguments:
            found: object ids by ref; others are left alone.

        """
        return any(self._oids.get(ref) != oid for ref, oid in found.items() if ref.startswith(self._prefix))

    def fetch_beside(self, found: Mapping[str, str]) -> Conversation:
        """Take over refs that the remote has, beside the session."""
        refs = {ref: oid for ref, oid in found.items() if ref.startswith(self._prefix)}
        specs = [f"+{ref}:{tracking(self._remote.name, ref)}" for ref in refs]
        completed = yield start_fetch(self._remote.git, self._remote.name, specs)
        if completed.status == 0:
            self._take_over(refs)

    def found(self) -> dict[str, float]:
        """Return the limits that the session has found, and that the remote lacks, by account."""
        now = time.time()
        limits = {}
        with contextlib.suppress(OSError):
            for path in self._directory.glob("*.json"):
                until = usage_limit.read(path, now)
                if until > self._written.get(path.stem, 0.0) and _ACCOUNT.fullmatch(path.stem):
                    limits[path.stem] = until
        return limits

    def push_beside(self, limits: Mapping[str, float]) -> Conversation:
        """Push limits that the session has found, beside the session."""
        git, name = self._remote.git, self._remote.name
        changes = []
        for account, until in limits.items():
            ref = f"{self._prefix}{account}"
            if until > self._known.get(account, 0.0) + _SAME:
                content = _FORMAT.encode({"until": until, "nonce": os.urandom(_NONCE).hex()})
                changes.append(RemoteChange(ref, self._oids.get(ref), store_blob(git, content)))
            self._delay(account, max(until, self._known.get(account, 0.0)))
        if not changes:
            return
        completed = yield start_atomic_push(git, name, changes)
        if completed.status != 0:  # another worker was faster, or the remote is away
            tracked = tracking(name, self._prefix)
            completed = yield start_fetch(git, name, [f"+{self._prefix}*:{tracked}*"])
            if completed.status == 0:
                refs = list_refs(git, tracked)
                self._take_over({self._prefix + ref.removeprefix(tracked): oid for ref, oid in refs.items()})
            for account in limits:
                self._written.pop(account, None)  # push it again, if it is later than what the remote has
            return
        for change in changes:
            account = change.ref.removeprefix(self._prefix)
            self._oids[change.ref], self._known[account] = change.after or "", limits[account]

    def _take_over(self, refs: Mapping[str, str]) -> None:
        """Write the limits of refs, which are fetched, for the session."""
        contents = read_blobs(self._remote.git, {*refs.values()})
        now = time.time()
        for ref, oid in refs.items():
            account = ref.removeprefix(self._prefix)
            self._oids[ref] = oid
            if _ACCOUNT.fullmatch(account) is None:
                continue
            try:
                until = _FORMAT.decode(
                    contents.get(oid, b""), lambda fields: usage_limit.end_within_a_day(fields["until"], now)
                )
            except ValueError:
                continue
            self._known[account] = until
            if until > self._written.get(account, 0.0):
                self._delay(account, until)

    def _delay(self, account: str, until: float) -> None:
        """Let the session wait until a time, and a random time longer."""
        later = until + self._spread * random.random()  # noqa: S311 -- jitter
        with contextlib.suppress(OSError):
            usage_limit.write(self._directory, self._directory / f"{account}.json", later)
            self._written[account] = later
