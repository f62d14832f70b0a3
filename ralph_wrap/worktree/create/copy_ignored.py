"""Copy into a worktree what an agent needs to work and no commit holds: ignored files of the project.

Git itself does the matching, in this order:

1. ``git ls-files --others --ignored`` with the patterns that were given lists the files that they match;
2. ``git check-ignore`` in the project's checkout leaves those that are ignored there: a file that is merely
   untracked is somebody's unfinished work;
3. ``git check-ignore`` in the worktree leaves those that are ignored there as well. The rule may be
   uncommitted: without it the agent's ``git add -A`` would commit the user's secrets.

Never copied are repositories (a worktree that holds one cannot be saved, and so not be removed), what is
ours or git's, and symlinks that lead out. Nothing is ever written through a symlink or over what is there.
Where no pattern is given, nothing is read but one file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import git
from ralph_wrap.errors import StoppedError
from ralph_wrap.system import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ralph_wrap.git import Git
    from ralph_wrap.worktree.model import LinkedWorktree

INCLUDE = ".worktreeinclude"
"""A file of patterns, at the top of the project's checkout."""

_PATTERNS = "ralph-wrap-copy"
_OURS = {".git", ".ralph"}
_FICLONE = 0x40049409  # <linux/fs.h>, ioctl_ficlonerange(2)
_CHUNK = 1 << 20  # bytes between two looks at whether to stop
_SHOWN = 1000  # files between two words of progress
_NAMED = 3  # files that a line names; the others are counted
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}  # no other file would fare better


class Copied(NamedTuple):
    """What came of copying.

    Attributes:
        number: of files and symlinks that were copied.
        left_out: what was not, and what to do about it: one line and a hint each.

    """

    number: int
    left_out: tuple[tuple[str, str], ...] = ()


def copy_ignored(
    tree: LinkedWorktree,
    where: Git,
    checkout: Path,
    patterns: Sequence[str],
    *,
    stopped: Callable[[], bool] = lambda: False,
    progress: Callable[[str], None] = lambda _: None,
) -> Copied | None:
    """Copy the ignored files that match patterns, or those in ``.worktreeinclude``, into a worktree.

    A file that cannot be copied never keeps the others from it.

    Arguments:
        tree: just made; nobody works in it yet.
        checkout: that top level.
        patterns: as in ``.gitignore``; they have the last word over those of the file.
        stopped: tells that the session is to end; copying is then cut short.
        progress: told how far copying is.

    Returns:
        ``None`` if nothing was asked for.

    Raises:
        GitError: it cannot be told what is to be copied.
        OSError: the same.

    """
    try:
        include = files.read(checkout / INCLUDE)
    except FileNotFoundError:
        include = b""
    rows = b"".join((include, b"\n", *(os.fsencode(f"{pattern}\n") for pattern in patterns)))
    if not rows.strip():
        return None
    found = _matching(tree, where, rows)
    repositories = repositories_in(found)
    if repositories:
        below = tuple(f"{path}/" for path in repositories)
        found = [path for path in found if not f"{path.rstrip('/')}/".startswith(below)]
    found = _ignored(where, found)
    free = [path for path in found if _is_free(tree.path, path)]
    wanted = _ignored(tree.git(where), free)
    copying = _Copying(checkout, tree.path, stopped)
    for number, path in enumerate(wanted):
        if copying.over or stopped():
            break
        if number % _SHOWN == _SHOWN - 1:
            progress(f"copy: {number + 1} of {len(wanted)} ignored files")
        copying.copy(path)
    if len(wanted) >= _SHOWN:
        progress("")
    unignored = sorted({*free} - {*wanted})
    return Copied(
        copying.count,
        (
            *_line(
                unignored,
                "would not be ignored in the worktree",
                "commit the rule that ignores them here: git check-ignore -v PATH names it",
            ),
            *_line(repositories, "are repositories", "clone them, or share them: --link"),
            *_line(
                copying.leading_out,
                "are symlinks that lead out, or are not relative",
                "ln -sr makes a relative one",
            ),
            *_line(
                [*copying.failed], f"cannot be copied: {next(iter(copying.failed.values()), '')}", "copy them"
            ),
        ),
    )


def _line(paths: Sequence[str], why: str, hint: str) -> Iterator[tuple[str, str]]:
    if paths:
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        yield f"not copied into the worktree: {', '.join(paths[:_NAMED])}{more} ({why})", hint


def _matching(tree: LinkedWorktree, where: Git, rows: bytes) -> list[str]:
    """Return the untracked files of a checkout that patterns match; a nested repository ends in a slash."""
    place = tree.registration / _PATTERNS  # git deletes it with the rest
    try:
        files.replace(place, rows, sync=False)
        listed = git.run(where, "ls-files", "--others", "--ignored", f"--exclude-from={place}", "-z")
    finally:
        place.unlink(missing_ok=True)
    paths = git.text(listed.stdout).split("\0")[:-1]
    # Where names differ in case alone, .GIT is git's as well.
    return [
        path
        for path in paths
        if path.split("/", 1)[0].casefold() not in _OURS and ".git" not in path.casefold().split("/")
    ]


def repositories_in(paths: Sequence[str]) -> list[str]:
    """Return the directories that are a repository, or that would look like a bare one.

    Arguments:
        paths: of files; one that ends in a slash is a repository.

    """
    there = {path.rstrip("/") for path in paths}
    directories: set[str] = set()
    for path in paths:
        parent = path.rstrip("/").rpartition("/")[0]
        while parent and parent not in directories:
            directories.add(parent)
            parent = parent.rpartition("/")[0]
    bare = {
        path
        for path in directories
        if {f"{path}/objects", f"{path}/refs"} <= directories
        and (f"{path}/HEAD" in there or f"{path}/HEAD" in directories)
    }
    return sorted({path.rstrip("/") for path in paths if path.endswith("/")} | bare)


def _ignored(here: Git, paths: Sequence[str]) -> list[str]:
    """Return those of some paths, which need not exist, that git ignores."""
    if not paths:
        return []
    given = "".join(f"{path}\0" for path in paths).encode("utf-8", "surrogateescape")
    # Verbose, because git before 2.26 also names a path that a rule with "!" brings back.
    answer = git.run(here, "check-ignore", "--verbose", "-z", "--stdin", stdin=given, accept=(0, 1))
    fields = git.text(answer.stdout).split("\0")[:-1]
    return [path for rule, path in zip(fields[2::4], fields[3::4], strict=True) if not rule.startswith("!")]


def _is_free(top: Path, path: str) -> bool:
    """Tell whether nothing is in the place of a file, nor anything but directories on the way to it."""
    place = top
    *above, name = path.split("/")
    for part in above:
        place /= part
        try:
            if not stat.S_ISDIR(place.lstat().st_mode):
                return False  # a linked directory, a symlink or a file of the commit
        except FileNotFoundError:
            return True
    return not os.path.lexists(place / name)


class _Copying:
    """Copies of one checkout's files in one worktree.

    Attributes:
        count: of files that were copied.
        leading_out: symlinks that were not.
        failed: why other files were not.
        over: there is no use in going on.

    """

    def __init__(self, checkout: Path, top: Path, stopped: Callable[[], bool]) -> None:
        self._checkout = checkout
        self._top = top
        self._stopped = stopped
        self.count = 0
        self.leading_out: list[str] = []
        self.failed: dict[str, str] = {}
        self.over = False

    def copy(self, path: str) -> None:
        """Copy one file or symlink, which is not there yet."""
        source, target = self._checkout / path, self._top / path
        try:
            self._make_directories(path)
            if source.is_symlink():
                self._copy_link(path, source, target)
            else:
                copy_file(source, target, self._stopped)
                self.count += 1
        except FileExistsError:
            return
        except StoppedError:
            self.over = True
        except OSError as error:
            self.failed[path] = error.strerror or str(error)
            self.over = error.errno in _NO_ROOM

    def _make_directories(self, path: str) -> None:
        """Make the directories above a file, as private as they are in the project."""
        for parent in reversed(Path(path).parents):
            place = self._top / parent
            if not place.is_dir():
                place.mkdir()
                place.chmod(stat.S_IMODE((self._checkout / parent).stat().st_mode) & 0o777 | stat.S_IRWXU)

    def _copy_link(self, path: str, source: Path, target: Path) -> None:
        text = os.readlink(source)  # noqa: PTH115 -- a Path drops a slash at its end
        if _leads_out(text, source.parent, self._checkout) or _leads_out(text, target.parent, self._top):
            self.leading_out.append(path)
            return
        target.symlink_to(text)
        self.count += 1


def _leads_out(text: str, directory: Path, top: Path) -> bool:
    # realpath() does not raise for a loop of symlinks, which leads nowhere.
    return Path(text).is_absolute() or not Path(os.path.realpath(directory / text)).is_relative_to(top)


def copy_file(source: Path, target: Path, stopped: Callable[[], bool]) -> None:
    """Copy a regular file with mode and time of last modification; nothing is left of a failed attempt.

    Arguments:
        source: the file.
        target: nothing is there yet.
        stopped: asked from time to time.

    Raises:
        StoppedError: it was answered that this is to end.
        OSError: it cannot be copied.

    """
    with contextlib.ExitStack() as stack:
        # O_NONBLOCK: opening a FIFO that somebody put there must not hang.
        reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, reading)
        found = os.fstat(reading)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(source))
        # Readable by nobody else until it has its mode: it may hold a password.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        writing = os.open(target, flags, 0o600)
        stack.callback(os.close, writing)
        try:
            if not _reflink(reading, writing):
                _copy_content(reading, writing, found.st_size, stopped)
            os.fchmod(writing, stat.S_IMODE(found.st_mode) & 0o777)
            os.utime(writing, ns=(found.st_atime_ns, found.st_mtime_ns))
        except BaseException:
            target.unlink(missing_ok=True)
            raise


def _reflink(reading: int, writing: int) -> bool:
    """Have a file share the blocks of another one until either is written to (btrfs, XFS, bcachefs)."""
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError:  # another file system, or one that cannot do that
        return False
    return True


def _copy_content(reading: int, writing: int, size: int, stopped: Callable[[], bool]) -> None:
    """Copy what a file holds, and leave its holes holes."""
    os.ftruncate(writing, size)
    for start, end in _data(reading, size):
        place = start
        while place < end:
            if stopped():
                raise StoppedError("a signal came during the copying")
            chunk = os.pread(reading, min(_CHUNK, end - place), place)
            if not chunk:  # it was cut short meanwhile
                return
            place += os.pwrite(writing, chunk, place)


def _data(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where a file holds data (``lseek(2)``: SEEK_DATA)."""
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # the file system does not know
                yield end, size
            return
        yield start, min(end, size)
