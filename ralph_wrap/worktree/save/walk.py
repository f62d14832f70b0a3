"""Search every directory of a worktree for repositories and unreadable directories; git reports neither.

The walk also notes inode, mode, size and times of each file and directory. If a later walk notes the same, no
process has written there meanwhile, and no ``git status`` needs to say so. Git itself decides by the same
values whether it reads a file again. They prove nothing if a file was written just before the first walk. The
clock for these times ticks every few milliseconds, and a second write in the same tick would not show.
On a disk of its own, Linux takes these times from the clock of :func:`file_clock`. There a write shows once
this clock has ticked. The server of a network file system has a clock that we cannot read.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.system import files
from ralph_wrap.system.cancel import NEVER, CancelToken
from ralph_wrap.system.delete_tree import OPEN_DIRECTORY

_BARE = {"HEAD", "objects", "refs"}  # a directory with these is a repository (gitrepository-layout(5))
_NOTED = 20_000  # files at most: of more, git reads the values faster, because it uses several cores
_TICK = 30_000_000  # nanoseconds for any other clock; the slowest one of Linux ticks every 10 ms
_COARSE_TICK = 3_000_000_000  # the same for a file system that keeps whole seconds (FAT: two)
_FINE = 1_000_000  # nanoseconds; a file system with finer times has some that are no multiple of this

_CLOCK_REALTIME_COARSE = 5  # <linux/time.h>
_OF_THIS_CLOCK = {"ext4", "tmpfs", "xfs"}  # file systems of Linux that keep its times, to the nanosecond

_Stamp = tuple[str, str, int, int, int, int, int]


def file_clock() -> int:
    """Return the clock from which Linux takes the times of files, in nanoseconds since 1970.

    The kernel's ``current_time()`` reads it (``ktime_get_coarse_real_ts64``). So a file that is written after
    this call has no earlier time.
    """
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


class Unreadable(str):
    """A problem of a save that ends when its owner may read the files: no content is in the way."""

    __slots__ = ()


class FileStamps(NamedTuple):
    """What the kernel says about the files of a worktree.

    Attributes:
        begun: what :func:`file_clock` showed before the walk.
        own_index: path of the worktree's index, which is one of the files.
        without: directories below the top that were left out.
        entries: directory, name, inode, mode, size and both times of each entry; ``None`` if there are too
            many, or if one vanished.

    """

    begun: int
    own_index: Path
    without: Collection[str]
    entries: list[_Stamp] | None

    def still_hold(self, top: Path) -> bool:
        """Return whether certainly no file below the top was written since :attr:`begun`."""
        if self.without or not self.show_each_write(top):
            return False
        return walk(top, self.without, self.own_index).stamps.entries == self.entries

    def show_each_write(self, top: Path) -> bool:
        """Return whether a file that was written since :attr:`begun` certainly has another time."""
        if self.entries is None:
            return False
        times = [entry[-1] for entry in self.entries]
        last = max(times)
        if not any(moment % _FINE for moment in times):
            return last + _COARSE_TICK < self.begun
        if last + _TICK < self.begun:
            return True
        return last < self.begun and files.file_system_type(top) in _OF_THIS_CLOCK


class DirectoryWalk(NamedTuple):
    """The result of a walk through a directory tree; every path is relative to its top.

    Attributes:
        repositories: directories with their own ``.git``.
        bare: directories that look like a bare repository; for git their files are ordinary files.
        counts: number of entries that are not directories, by directory.
        problems: one line for each directory that could not be read.
        stamps: inode, size and times of the files.

    """

    repositories: tuple[str, ...]
    bare: tuple[str, ...]
    counts: dict[str, int]
    problems: tuple[str, ...]
    stamps: FileStamps

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


def walk(
    top: Path, without: Collection[str], index: Path, begun: int = 0, cancel: CancelToken = NEVER
) -> DirectoryWalk:
    """Walk through every directory below *top*; follow no symlink, and read no file.

    Arguments:
        top: the top level of a worktree.
        without: directories to leave out.
        index: path of the worktree's index.
        begun: what :func:`file_clock` showed when the work began that must see the same files.
        cancel: a signal ends the walk.

    Raises:
        InterruptedError: a signal came.

    """
    begun = begun or file_clock()
    root = os.fspath(top)
    repositories, bare, problems = list[str](), list[str](), list[str]()
    counts: dict[str, int] = {}
    stamps = _first_stamps(root, index)
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
                    stamps = _noted(stamps, directory, entry)
        except OSError as error:
            problems.append(f"directory {directory or '.'} cannot be read: {error.strerror}")
        counts[directory] = count
        if names >= _BARE and directory:
            bare.append(directory)
    noted = FileStamps(begun, index, without, stamps)
    return DirectoryWalk(tuple(filter(None, repositories)), tuple(bare), counts, tuple(problems), noted)


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


def _first_stamps(root: str, index: Path) -> list[_Stamp] | None:
    """Return the stamps of the top level and of the index; a rename changes one time of the former."""
    try:
        top, own = Path(root).lstat(), index.lstat()
    except OSError:
        return None
    return [
        ("", "", top.st_ino, top.st_mode, 0, top.st_mtime_ns, top.st_mtime_ns),
        ("", "/", own.st_ino, own.st_mode, own.st_size, own.st_mtime_ns, own.st_ctime_ns),
    ]


def _noted(stamps: list[_Stamp] | None, directory: str, entry: os.DirEntry[str]) -> list[_Stamp] | None:
    """Return the stamps with one more; ``None`` if there are too many, or if the entry has vanished."""
    if stamps is None or len(stamps) >= _NOTED:
        return None
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    stamps.append(
        (
            directory,
            entry.name,
            found.st_ino,
            found.st_mode,
            found.st_size,
            found.st_mtime_ns,
            found.st_ctime_ns,
        )
    )
    return stamps


def _below(ignored: tuple[str, ...]) -> Callable[[str], bool]:
    directories = tuple(path for path in ignored if path.endswith("/"))
    return lambda path: f"{path}/".startswith(directories)
