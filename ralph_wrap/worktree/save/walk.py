"""Search every directory of a worktree for repositories and unreadable directories; git reports neither."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_BARE = {"HEAD", "objects", "refs"}  # a directory with these is a repository (gitrepository-layout(5))


class DirectoryWalk(NamedTuple):
    """The result of a walk through a directory tree; every path is relative to its top.

    Attributes:
        repositories: directories with their own ``.git``.
        bare: directories that look like a bare repository; for git their files are ordinary files.
        counts: number of entries that are not directories, by directory.
        problems: one line for each directory that could not be read.

    """

    repositories: tuple[str, ...]
    bare: tuple[str, ...]
    counts: dict[str, int]
    problems: tuple[str, ...]

    def bare_beside(self, ignored: tuple[str, ...]) -> list[str]:
        """Return the bare repositories of which git ignores a part, so that no save holds it."""
        below = _below(ignored)
        return [
            path for path in self.bare if below(path) or any(part.startswith(f"{path}/") for part in ignored)
        ]

    def count_below(self, ignored: tuple[str, ...]) -> int:
        """Count ignored files, including those in ignored directories."""
        below = _below(ignored)
        single = sum(not path.endswith("/") for path in ignored)
        return single + sum(count for path, count in self.counts.items() if below(path))


def walk(top: Path, without: Collection[str] = ()) -> DirectoryWalk:
    """Walk through every directory below *top* except those of *without*; follow no symlink.

    The walk reads only names, no file. For 100,000 files it takes a tenth of the time of ``git status``.
    """
    root = os.fspath(top)
    repositories: list[str] = []
    bare: list[str] = []
    counts: dict[str, int] = {}
    problems: list[str] = []
    waiting = [""]
    while waiting:
        if (directory := waiting.pop()) in without:
            continue
        names: set[str] = set()
        files = 0
        path = f"{root}/{directory}"
        if not os.access(path, os.R_OK | os.X_OK):
            # Without X_OK the names can be read, but for git every file is unchanged.
            problems.append(f"directory {directory or '.'} cannot be searched")
            continue
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.name == ".git":
                        repositories.append(directory)
                    elif entry.is_dir(follow_symlinks=False):
                        names.add(entry.name)
                        waiting.append(f"{directory}/{entry.name}" if directory else entry.name)
                    else:
                        files += 1
                        if entry.name == "HEAD":
                            names.add(entry.name)
        except OSError as error:
            problems.append(f"directory {directory or '.'} cannot be read: {error.strerror}")
        counts[directory] = files
        if names >= _BARE and directory:
            bare.append(directory)
    return DirectoryWalk(tuple(filter(None, repositories)), tuple(bare), counts, tuple(problems))


def _below(ignored: tuple[str, ...]) -> Callable[[str], bool]:
    directories = tuple(path for path in ignored if path.endswith("/"))
    return lambda path: f"{path}/".startswith(directories)
