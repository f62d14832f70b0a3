"""The refs of a repository, listed again only if a file that holds them has changed.

A ref changes by a new file in its place (gitrepository-layout(5)), so inode and times of the files show each
change. That spares a git process in each observation. A reftable is always read by git.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ralph_wrap.git import Git, decode, pointer, start_git
from ralph_wrap.system import files
from ralph_wrap.system.process import RunningCommand

FREE = ("refs/heads/ralph/", "refs/ralph/", "refs/ralph-remotes/", "refs/remotes/", "refs/prefetch/")
"""Refs that sessions and fetches may change."""

_FORMAT = "--format=%(objectname)%(HEAD)%(refname)"

_State = tuple[tuple[str, int, int, int, int], ...]


class ObservedRefs:
    """Lists the refs of a repository for a session.

    Arguments:
        git: git in the checkout, with its git directory and its common directory.

    """

    def __init__(self, git: Git) -> None:
        self._git = git
        self._state: _State | None = None
        self._output = b""

    def start(self) -> RunningCommand:
        """Start to list all refs."""
        return start_git(self._git, "for-each-ref", _FORMAT)

    def keep(self, state: _State | None, output: bytes) -> bytes:
        """Keep and return the output of git.

        Arguments:
            state: what :meth:`state` returned before git started.
            output: of git.

        """
        self._state, self._output = state, output
        return output

    def known(self, state: _State | None) -> bytes | None:
        """Return the last output, ``None`` if a ref may have changed since then."""
        return None if state is None or state != self._state else self._output

    def state(self) -> _State | None:
        """Return values that change with each ref, except those of sessions; ``None`` if only git knows."""
        own, common = self._git.git_dir, self._git.common_dir
        if own is None or common is None or (common / "reftable").exists():
            return None
        try:
            head = decode(files.read(own / "HEAD", pointer.LONGEST)).removeprefix("ref: ")
            if head.startswith(FREE):
                return None
            return tuple(_files(own, common))
        except OSError:
            return None


def _files(own: Path, common: Path) -> Iterator[tuple[str, int, int, int, int]]:
    yield _values(os.fspath(own / "HEAD"))
    if (common / "packed-refs").exists():
        yield _values(os.fspath(common / "packed-refs"))
    for top in {os.fspath(own), os.fspath(common)}:
        waiting = ["refs/"]
        while waiting:
            directory = waiting.pop()
            with os.scandir(f"{top}/{directory}") as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        yield _values(entry.path)
                    elif not (inner := f"{directory}{entry.name}/").startswith(FREE):
                        waiting.append(inner)


def _values(path: str) -> tuple[str, int, int, int, int]:
    found = os.lstat(path)
    return (path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
