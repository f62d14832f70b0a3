"""Find a FIFO or a device where git expects a file: git would wait in ``open(2)`` without end.

While a command runs longer than usual, a walk looks at all files that git may open: configuration, refs,
objects, registrations, and the rules in the checkout.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.git import pointer
from ralph_wrap.git.config_file import parse
from ralph_wrap.system import files

_RULES = (".gitattributes", ".gitignore", ".gitmodules")  # in each directory of a checkout
_NEVER_OPENED = frozenset({"hooks", "lfs"})  # directories
_NAMED = frozenset({"core.attributesfile", "core.excludesfile", "mailmap.file"})  # keys that name a file
_LARGEST = 1 << 22  # bytes of a configuration
_DEEPEST = 10  # includes in includes, as in git
_LONGEST_WALK = 3.0  # seconds


class GitPlaces(NamedTuple):
    """The directories in which a git command opens files.

    Attributes:
        git_dir: the repository, or the registration of the worktree.
        common_dir: the directory that all worktrees share.
        objects: the object directory.
        work_tree: the checkout; ``None`` without one.

    """

    git_dir: Path
    common_dir: Path
    objects: Path
    work_tree: Path | None


def places_of(directory: Path) -> GitPlaces | None:
    """Return the places of git in a directory where it searches for the repository; ``None`` without one."""
    for top in (directory, *directory.parents):
        if os.path.lexists(top / ".git"):
            common_dir = pointer.common_dir_by_place(top)
            return GitPlaces(pointer.git_dir_of(top), common_dir, common_dir / "objects", top)
    return None


def search(places: GitPlaces) -> str | None:
    """Return a FIFO or a device in the place of any file that git may open; give up after a while."""
    deadline = time.monotonic() + _LONGEST_WALK
    for path in _candidates(places):
        if _blocks(path):
            return path
        if time.monotonic() > deadline:
            return None
    return None


def _candidates(places: GitPlaces) -> Iterator[str]:
    yield from _named_by_configuration(places.common_dir / "config", 0)
    directories = [places.git_dir, places.common_dir, places.objects, *_borrowed(places.objects)]
    for directory in dict.fromkeys(directories):
        yield from _odd_below(os.fspath(directory), is_git_dir=True)
    if places.work_tree is not None:
        yield from _odd_below(os.fspath(places.work_tree), is_git_dir=False)


def _named_by_configuration(path: Path, depth: int) -> Iterator[str]:
    """Yield the files that a configuration includes or names, also those of its includes."""
    try:
        entries = parse(files.read(path, _LARGEST))
    except (OSError, ValueError):
        return
    for key, value in entries:
        if value and (key == "include.path" or (key.startswith("includeif.") and key.endswith(".path"))):
            included = path.parent / Path(value).expanduser()
            yield str(included)
            if depth < _DEEPEST:
                yield from _named_by_configuration(included, depth + 1)
        elif value and key in _NAMED:
            yield str(path.parent.parent / Path(value).expanduser())


def _borrowed(objects: Path) -> Iterator[Path]:
    """Yield the object directories from which a repository borrows."""
    try:
        lines = files.read(objects / "info/alternates", _LARGEST).splitlines()
    except OSError:
        return
    for line in lines:
        yield objects / os.fsdecode(line)


def _odd_below(directory: str, *, is_git_dir: bool) -> Iterator[str]:
    """Yield what is neither a plain file nor a directory; a directory itself, so that a caller sees the time.

    Arguments:
        is_git_dir: git may open every file. In a checkout it opens only rules and nested repositories.

    """
    waiting = [(directory, is_git_dir)]  # a list: an agent can make more levels than Python has calls
    while waiting:
        directory, is_git_dir = waiting.pop()
        yield directory
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in _NEVER_OPENED or not is_git_dir:
                            waiting.append((entry.path, is_git_dir or entry.name == ".git"))
                    elif not entry.is_file(follow_symlinks=False) and (is_git_dir or entry.name in _RULES):
                        yield entry.path
        except OSError:
            continue


def _blocks(path: str) -> bool:
    try:
        found = os.stat(path)  # noqa: PTH116 -- half the time of Path.stat, for each file of a large repository
    except (OSError, ValueError):
        return False
    # A container or a sandbox masks a file by /dev/null, which nothing waits for.
    is_device = stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)
    return stat.S_ISFIFO(found.st_mode) or (is_device and found.st_rdev != _NULL)


_NULL = os.makedev(1, 3)
