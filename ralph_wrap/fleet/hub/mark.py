"""The mark of a hub at origin: it shows that origin was restored from a backup.

A restored origin looks as if users had deleted branches, and moved others back. A hub that followed would
delete the only copy of this work. So each push of the hub moves a ref of its own at origin to a new object.
If origin has another object there, it has gone back, and the hub brings all its refs once more.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralph_wrap.fleet.hub.repository import HUBS
from ralph_wrap.git import RemoteChange, store_blob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralph_wrap.git import Git

_NONCE = 16  # bytes


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
        self._there: str | None = None

    def went_back(
        self, theirs: Mapping[str, str], agreed: Mapping[str, str], pushing: Mapping[str, str]
    ) -> bool:
        """Take in what origin has, and return whether it has gone back; arguments are those of ``plan``."""
        self._there = theirs.get(self.ref)
        return self.ref in agreed and self._there not in {agreed[self.ref], pushing.get(self.ref)}

    def change(self) -> RemoteChange:
        """Return the next change of the mark, which goes with a push."""
        return RemoteChange(self.ref, self._there, store_blob(self._git, os.urandom(_NONCE).hex().encode()))

    def moved(self, change: RemoteChange) -> None:
        """Take in that origin has taken a change."""
        self._there = change.after
