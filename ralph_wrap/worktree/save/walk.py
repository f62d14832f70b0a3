"""Search every directory of a worktree for repositories and unreadable directories; git reports neither."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.system.cancel import NEVER, CancelToken
from ralph_wrap.system.delete_tree import OPEN_DIRECTORY

_BARE = {"HEAD", "objects", "refs"}  # a directory with these is a repository (gitrepository-layout(5))


class Unreadable(str):
    """A problem of a save that ends when its owner may read the files: no content is in the way."""

    __slots__ = ()


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

    @staticmethod
    def is_below(path: str, ignored: tuple[str, ...]) -> bool:
        """Return whether a path is one of these directories, or below one."""
        return _below(ignored)(path)

    def count_below(self, ignored: tuple[str, ...]) -> int:
        """Count ignored files, including those in ignored directories."""
        below = _below(ignored)
        single = sum(not path.endswith("/") for path in ignored)
        return single + sum(count for path, count in self.counts.items() if below(path))


def walk(top: Path, without: Collection[str], cancel: CancelToken = NEVER) -> DirectoryWalk:
    """Walk through every directory below *top*; follow no symlink, and read no file.

    Arguments:
        top: the top level of a worktree.
        without: directories to leave out.
        cancel: a signal ends the walk.

    Raises:
        InterruptedError: a signal came.

    """
    root = os.fspath(top)
    repositories, bare, problems = list[str](), list[str](), list[str]()
    counts: dict[str, int] = {}
    waiting = [""]
    while waiting:
        _go_on(cancel)
        if (directory := waiting.pop()) in without:
            continue
        names: set[str] = set()
        count = 0
        path = f"{root}/{directory}"
        if not os.access(path, os.R_OK | os.X_OK):
            # Without X_OK the names can be read, but for git every file is unchanged.
            problems.append(Unreadable(f"directory {directory or '.'} cannot be searched"))
            continue
        try:
            with _opened(path) as entries:
                for entry in entries:
                    if entry.name == ".git":
                        repositories.append(directory)
                    elif entry.is_dir(follow_symlinks=False):
                        names.add(entry.name)
                        waiting.append(f"{directory}/{entry.name}" if directory else entry.name)
                    else:
                        count += 1
                        if entry.name == "HEAD":
                            names.add(entry.name)
        except OSError as error:
            problems.append(f"directory {directory or '.'} cannot be read: {error.strerror}")
        counts[directory] = count
        if names >= _BARE and directory:
            bare.append(directory)
    return DirectoryWalk(tuple(filter(None, repositories)), tuple(bare), counts, tuple(problems))


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Open a directory and yield its entries.

    They belong to a descriptor: the kernel looks up a name in it, not a path of a dozen names for each file.
    """
    directory = os.open(path, OPEN_DIRECTORY)
    try:
        with os.scandir(directory) as entries:
            yield entries
    finally:
        os.close(directory)


def _go_on(cancel: CancelToken) -> None:
    if cancel.requested:
        raise InterruptedError("a signal came")


def _below(ignored: tuple[str, ...]) -> Callable[[str], bool]:
    directories = tuple(path for path in ignored if path.endswith("/"))
    return lambda path: f"{path}/".startswith(directories)
