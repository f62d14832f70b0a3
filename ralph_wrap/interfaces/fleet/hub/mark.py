"""The mark of a hub at origin: it shows that origin was restored from a backup.

A restored origin looks as if users had deleted branches, and moved others back. A hub that followed would
delete the only copy of this work. So each push of the hub moves a ref of its own at origin to a new object.
If origin has an older object there, it has gone back, and the hub brings all its refs once more.

The object has a number that grows. If origin has a higher one, the volume of the hub was restored: origin has
the newer work then, and the hub follows as always.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ralph_wrap.git import store_blob
from ralph_wrap.git.remote import RemoteChange
from ralph_wrap.git.safe.batch import read_blobs
from ralph_wrap.interfaces.fleet.hub.repository import HUBS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralph_wrap.git import Git

_NONCE = 16  # bytes
_NUMBER = re.compile(rb"\d{1,15}")


class OriginMark:
    """The mark of a hub.

    Arguments:
        git: at the repository of the hub.
        name: of the hub.

    Attributes:
        ref: its full name at origin.

    """

    def __init__(self, git: Git, name: str) -> None:
        self.ref = f"{HUBS}{name}"
        self._git = git
        self._oid: str | None = None
        self._number = 0

    def went_back(
        self, theirs: Mapping[str, str], agreed: Mapping[str, str], pushing: Mapping[str, str]
    ) -> bool:
        """Take in what origin has, and return whether it has gone back; arguments are those of ``plan``."""
        self._oid = theirs.get(self.ref)
        known = agreed.get(self.ref)
        numbers = self._numbers(known, self._oid)
        self._number = max(numbers)
        is_expected = self._oid in {known, pushing.get(self.ref)}
        return known is not None and not is_expected and numbers[1] < numbers[0]

    def change(self) -> RemoteChange:
        """Return the next change of the mark, which goes with a push."""
        self._number += 1
        content = f"{self._number} {os.urandom(_NONCE).hex()}\n".encode()
        return RemoteChange(self.ref, self._oid, store_blob(self._git, content))

    def _numbers(self, *marks: str | None) -> list[int]:
        """Return the numbers in marks; 0 for one that is missing or damaged."""
        contents = read_blobs(self._git, [oid for oid in marks if oid])
        words = [contents.get(oid or "", b"").partition(b" ")[0] for oid in marks]
        return [int(word) if _NUMBER.fullmatch(word) else 0 for word in words]

    def moved(self, change: RemoteChange) -> None:
        """Take in that origin has taken a change."""
        self._oid = change.after
