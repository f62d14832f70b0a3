"""Look at every directory of a worktree for what git does not tell: repositories, unreadable places."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_BARE = {"HEAD", "objects", "refs"}  # what makes a directory a repository (gitrepository-layout(5))


class DirectoryWalk(NamedTuple):
    """What is in a directory tree; every path is relative to its top.

    Attributes:
        repositories: directories with a ``.git`` of their own.
        bare: directories that look like a bare repository; git takes their files for ordinary ones.
        counts: number of files that are no directories, by directory.
        problems: what could not be looked at, one line each.

    """

    repositories: tuple[str, ...]
    bare: tuple[str, ...]
    counts: dict[str, int]
    problems: tuple[str, ...]

    def bare_beside(self, ignored: tuple[str, ...]) -> list[str]:
        """Return the bare repositories of which at least a part is ignored, and so saved by nothing."""
        below = _below(ignored)
        return [
            path for path in self.bare if below(path) or any(part.startswith(f"{path}/") for part in ignored)
        ]

    def count_below(self, ignored: tuple[str, ...]) -> int:
        """Count ignored files, those in ignored directories included."""
        below = _below(ignored)
        single = sum(not path.endswith("/") for path in ignored)
        return single + sum(count for path, count in self.counts.items() if below(path))


def walk(top: Path, without: Collection[str] = ()) -> DirectoryWalk:
    """Look at every directory below *top* but some, following no symlink.

    Names only, no file is touched: that is what makes it cheap (100,000 files in about a tenth of the time
    that ``git status`` takes for them).
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
        place = f"{root}/{directory}"
        if not os.access(place, os.R_OK | os.X_OK):
            # Without the latter the names can be read, but git takes every file for unchanged.
            problems.append(f"directory {directory or '.'} cannot be searched")
            continue
        try:
            with os.scandir(place) as entries:
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
