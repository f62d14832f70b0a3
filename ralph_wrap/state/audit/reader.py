"""Look at files that an agent may have replaced: nothing here hangs, follows a link or reads too much."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from ralph_wrap.state.audit.finding import Finding, FindingKind, digest_of
from ralph_wrap.system import files

LARGEST = 1 << 20
"""Bytes of a control file; of a larger one the audit says so."""

MOST_ENTRIES = 20_000
"""Entries of a directory; of a larger one the audit says so."""

_NOT_PLAIN = {errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.EISDIR}  # a symlink, and what files.read refuses


class Reader:
    """Reads files and directories, and collects what it finds.

    Arguments:
        root: the project root, for the names of places.

    Attributes:
        findings: all findings so far.
        contents: the content of each configuration and each file of a finding, by shown path.

    """

    def __init__(self, root: str) -> None:
        self._root = root
        self.findings: list[Finding] = []
        self.contents: dict[str, bytes] = {}

    def shown_path(self, path: str) -> str:
        """Return a path for people."""
        return path[len(self._root) + 1 :] if path.startswith(f"{self._root}/") else path

    def add(self, path: str, kind: FindingKind, name: str = "", *parts: str | bytes) -> None:
        """Add a finding.

        Arguments:
            parts: what stands there; something else there later is another finding.

        """
        shown_path = self.shown_path(path)
        self.findings.append(
            Finding(shown_path, path, kind, name, digest_of(shown_path, kind.value, name, *parts))
        )

    def entries(self, path: str) -> Iterator[os.DirEntry[str]]:
        """Yield the entries of a directory; a missing one has none."""
        try:
            with os.scandir(path) as listed:
                for number, entry in enumerate(listed):
                    if number == MOST_ENTRIES:
                        self.add(path, FindingKind.TOO_MANY)
                        return
                    yield entry
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.add(path, FindingKind.UNREADABLE, "", str(error.errno))

    def plain_entries(self, path: str) -> Iterator[os.DirEntry[str]]:
        """Yield the plain files and directories of a directory, and add what is neither."""
        for entry in self.entries(path):
            if entry.is_symlink():
                self.not_plain(entry.path)
            elif entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
                yield entry
            elif entry.name != "fsmonitor--daemon.ipc":  # the socket of git's own daemon
                self.not_plain(entry.path)

    def content(self, path: str, largest: int = LARGEST) -> bytes | None:
        """Return the content of a plain file; ``None`` if there is none, which is added if it is no file."""
        try:
            return files.read(Path(path), largest)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in _NOT_PLAIN:
                self.not_plain(path)
            else:
                self.add(path, FindingKind.UNREADABLE, "", str(error.errno))
            return None

    def not_plain(self, path: str) -> None:
        """Add what is in the place of a plain file or directory."""
        try:
            target = os.fspath(Path(path).readlink())
        except OSError:
            target = ""
        self.add(path, FindingKind.NOT_PLAIN, "", target)

    def keep(self, path: str, content: bytes) -> None:
        """Keep the content of a file, so that an undo can put it back."""
        self.contents[self.shown_path(path)] = content
