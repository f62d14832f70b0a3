"""Everything that is in a directory, to be compared."""

from __future__ import annotations

import os
from pathlib import Path


def listing(top: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of everything below a directory, a repository's own files included."""
    found = {}
    for directory, directories, files in os.walk(top):
        for name in (*directories, *files):
            path = Path(directory, name)
            mode = path.lstat().st_mode
            if path.is_symlink():
                content = os.fsencode(path.readlink())
            else:
                content = path.read_bytes() if path.is_file() else b""
            found[os.fspath(path.relative_to(top))] = (mode, content)
    return found
