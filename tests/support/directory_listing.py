"""Everything that is in a directory, to be compared."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.processes import is_deleting
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Collection


def listing(top: Path, without: Collection[str] = ()) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of everything below a directory, a repository's own files included.

    What a session or a sweep deletes in the background is gone before.

    Arguments:
        top: the directory.
        without: names of entries of *top* that are left out.

    """
    _await_deletions(top)
    found = {}
    for directory, directories, files in os.walk(top):
        if directory == os.fspath(top):
            directories[:] = [name for name in directories if name not in without]
        for name in (*directories, *files):
            path = Path(directory, name)
            mode = path.lstat().st_mode
            if path.is_symlink():
                content = os.fsencode(path.readlink())
            else:
                content = path.read_bytes() if path.is_file() else b""
            found[os.fspath(path.relative_to(top))] = (mode, content)
    return found


def _await_deletions(top: Path) -> None:
    """Wait until no process deletes worktrees, where the trash of a project is below a directory."""
    if any((top / directory).is_dir() for directory in (".ralph/run/trash", "run/trash")):
        home = Path(os.environ["HOME"])
        eventually(lambda: not is_deleting(home), "the worktrees in the trash to be deleted")
