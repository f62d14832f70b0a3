"""The files of this checkout, to have them in another place."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _files() -> dict[str, bytes]:
    """Return what a clone would have, with the changes that are not committed yet."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return {name: (ROOT / name).read_bytes() for name in sorted({*names}) if name and (ROOT / name).is_file()}


def digest(prefixes: tuple[str, ...] = ("",)) -> str:
    """Return a hash of names, contents and modes.

    Arguments:
        prefixes: of the names that count.

    """
    found = hashlib.sha256()
    for name, content in _files().items():
        if name.startswith(prefixes):
            found.update(
                f"{name}\0{(ROOT / name).stat().st_mode & 0o111}\0{len(content)}\0".encode() + content
            )
    return found.hexdigest()


def archive(owner: int = 0, prefix: str = "") -> bytes:
    """Return the files as a tar archive.

    Arguments:
        owner: the user id and group id of each file.
        prefix: before each name.

    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in _files().items():
            member = tarfile.TarInfo(prefix + name)
            member.size, member.uid, member.gid, member.mtime = len(content), owner, owner, int(time.time())
            member.mode = (ROOT / name).stat().st_mode & 0o777
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
