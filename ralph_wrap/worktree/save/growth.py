"""Say when snapshots fill the repository: most often with build output that git does not ignore.

Each snapshot stores what is new or has changed, and git compresses it. So this counts what goes in, not what
it takes on the disk.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ralph_wrap.system.log import get_logger
from ralph_wrap.system.text import readable_size

log = get_logger()

_MUCH = 200 << 20  # bytes


class SnapshotGrowth:
    """Counts the bytes that the snapshots of a worktree store, and warns once.

    Arguments:
        top: of the worktree.

    """

    def __init__(self, top: Path) -> None:
        self._top = top
        self._sizes = Counter[str]()  # by the first part of the path
        self._is_said = False

    def add(self, paths: Iterable[str]) -> None:
        """Count files that are about to be stored; those that are gone do not count."""
        if self._is_said:
            return
        for path in paths:
            try:
                status = os.lstat(self._top / path)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                first, slash, _ = path.partition("/")
                self._sizes[first + slash] += status.st_size
        if (total := self._sizes.total()) > _MUCH:
            self._is_said = True
            [(largest, size)] = self._sizes.most_common(1)
            line, rules = shlex.quote(f"/{largest}"), shlex.quote(os.fspath(self._top / ".gitignore"))
            log.warning(
                "snapshots.large",
                f"the snapshots of this session have stored {readable_size(total)} by now, and"
                f" {readable_size(size)} of that from {largest}, which git does not ignore",
                f"if it is build output: printf '\\n%s\\n' {line} >> {rules}",
                path=largest,
                bytes=total,
            )
