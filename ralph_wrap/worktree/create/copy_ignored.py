"""Copy ignored files of the project, which an agent may need, into its worktree.

Git itself matches the patterns, in this order:

1. ``git ls-files --others --ignored`` with the given patterns lists the files that match.
2. ``git check-ignore`` in the project's checkout keeps only ignored files. An untracked file may be the
   user's unfinished work.
3. ``git check-ignore`` in the worktree keeps only files that are ignored there, too. An ignore rule may be
   uncommitted, and without it the agent's ``git add -A`` would commit the user's secrets.

Repositories are never copied, because a worktree with one cannot be saved, and so not be removed. Nor are
our own files, those of git, and symlinks that lead out. A copy never goes through a symlink, and never
overwrites a file. Without patterns only one file is read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import StoppedError
from ralph_wrap.git import Git, decode, run_git
from ralph_wrap.git.index import encode_paths
from ralph_wrap.system import files
from ralph_wrap.system.cancel import NEVER, CancelToken
from ralph_wrap.system.text import named
from ralph_wrap.worktree.model import LinkedWorktree

INCLUDE = ".worktreeinclude"
"""A file of patterns, at the top of the project's checkout."""

_PATTERNS = "ralph-wrap-copy"
_OURS = {".git", ".ralph"}
_FICLONE = 0x40049409  # <linux/fs.h>, ioctl_ficlonerange(2)
_CHUNK = 1 << 20  # bytes between two looks for a signal
_SHOWN = 1000  # files between two progress messages
_NAMED = 3  # files that a message lists; it counts the others
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}  # the copy of any other file would fail, too


class CopyResult(NamedTuple):
    """The result of copying.

    Attributes:
        number: the number of copied files and symlinks.
        left_out: one line and one hint for each reason why files were not copied.

    """

    number: int
    left_out: tuple[tuple[str, str], ...] = ()


def copy_ignored(
    tree: LinkedWorktree,
    git: Git,
    checkout: Path,
    patterns: Sequence[str],
    *,
    cancel: CancelToken = NEVER,
    progress: Callable[[str], None] = lambda _: None,
) -> CopyResult | None:
    """Copy the ignored files that match patterns, or those in ``.worktreeinclude``, into a worktree.

    An error with one file never prevents the copies of the others.

    Arguments:
        tree: the new worktree, in which no process works yet.
        checkout: the top level of the project's checkout.
        patterns: patterns as in ``.gitignore``; they override those of ``.worktreeinclude``.
        cancel: a signal interrupts the copying.
        progress: called with a progress message.

    Returns:
        The result; ``None`` if there are no patterns.

    Raises:
        GitError: git cannot list the files.
        OSError: the patterns cannot be read or written.

    """
    rows = _pattern_rows(checkout, patterns)
    if not rows.strip():
        return None
    found = _matching(tree, git, rows)
    repositories = repositories_in(found)
    ignored = _ignored(git, _outside(repositories, found))
    free = [path for path in ignored if _is_free(tree.path, path)]
    wanted = _ignored(tree.git(git), free)
    copying = _CopyRun(checkout, tree.path, cancel)
    copying.copy_all(wanted, progress)
    unignored = sorted({*free} - {*wanted})
    return CopyResult(copying.count, tuple(_left_out(unignored, repositories, copying)))


def _pattern_rows(checkout: Path, patterns: Sequence[str]) -> bytes:
    """Return the patterns of ``.worktreeinclude`` and those of the settings, one a line."""
    try:
        include = files.read(checkout / INCLUDE)
    except FileNotFoundError:
        include = b""
    return b"".join((include, b"\n", *(os.fsencode(f"{pattern}\n") for pattern in patterns)))


def _outside(repositories: Sequence[str], paths: list[str]) -> list[str]:
    """Return the paths that are not in repositories."""
    if not repositories:
        return paths
    below = tuple(f"{path}/" for path in repositories)
    return [path for path in paths if not f"{path.rstrip('/')}/".startswith(below)]


def _left_out(
    unignored: Sequence[str], repositories: Sequence[str], copying: _CopyRun
) -> Iterator[tuple[str, str]]:
    """Yield one line and one hint for each reason why files were not copied."""
    yield from _line(
        unignored,
        "would not be ignored in the worktree",
        "commit the rule that ignores them here; to find it: git check-ignore -v PATH",
    )
    yield from _line(repositories, "are repositories", "clone them, or share them: --link")
    yield from _line(
        copying.leading_out,
        "are symlinks that lead out, or are not relative",
        "to make a relative one: ln -sr",
    )
    yield from _line(
        [*copying.failed],
        f"cannot be copied: {next(iter(copying.failed.values()), '')}",
        "copy them by hand",
    )


def _line(paths: Sequence[str], why: str, hint: str) -> Iterator[tuple[str, str]]:
    if paths:
        yield f"not copied into the worktree: {named(paths, _NAMED)} ({why})", hint


def _matching(tree: LinkedWorktree, git: Git, rows: bytes) -> list[str]:
    """Return the untracked files of a checkout that match patterns; a nested repository ends in a slash."""
    path = tree.registration / _PATTERNS  # git deletes it with the registration
    try:
        files.replace(path, rows, sync=False)
        listed = run_git(git, "ls-files", "--others", "--ignored", f"--exclude-from={path}", "-z")
    finally:
        path.unlink(missing_ok=True)
    paths = decode(listed.stdout).split("\0")[:-1]
    # On a file system that ignores case, .GIT is git's directory, too.
    return [
        path
        for path in paths
        if path.split("/", 1)[0].casefold() not in _OURS and ".git" not in path.casefold().split("/")
    ]


def repositories_in(paths: Sequence[str]) -> list[str]:
    """Return the directories that are repositories, or look like bare ones.

    Arguments:
        paths: paths of files; a path that ends in a slash is a repository.

    """
    names = {path.rstrip("/") for path in paths}
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
        and (f"{path}/HEAD" in names or f"{path}/HEAD" in directories)
    }
    return sorted({path.rstrip("/") for path in paths if path.endswith("/")} | bare)


def _ignored(git: Git, paths: Sequence[str]) -> list[str]:
    """Return the paths that git ignores; they may not exist."""
    if not paths:
        return []
    stdin = encode_paths(paths)
    # Verbose, because git before 2.26 also names a path that a rule with "!" brings back.
    answer = run_git(git, "check-ignore", "--verbose", "-z", "--stdin", stdin=stdin, accept=(0, 1))
    fields = decode(answer.stdout).split("\0")[:-1]
    return [path for rule, path in zip(fields[2::4], fields[3::4], strict=True) if not rule.startswith("!")]


def _is_free(top: Path, path: str) -> bool:
    """Return whether a path is free, and all its existing parents are directories."""
    directory = top
    *parents, name = path.split("/")
    for part in parents:
        directory /= part
        try:
            if not stat.S_ISDIR(directory.lstat().st_mode):
                return False  # a linked directory, a symlink or a file of the commit
        except FileNotFoundError:
            return True
    return not os.path.lexists(directory / name)


class _CopyRun:
    """Copies files of a checkout into a worktree.

    Attributes:
        count: the number of copied files.
        leading_out: symlinks that lead out, which are not copied.
        failed: the reasons why other files are not copied, by path.
        over: further copies would fail, or the session must end.

    """

    def __init__(self, checkout: Path, top: Path, cancel: CancelToken) -> None:
        self._checkout = checkout
        self._top = top
        self._cancel = cancel
        self.count = 0
        self.leading_out: list[str] = []
        self.failed: dict[str, str] = {}
        self.over = False

    def copy_all(self, paths: Sequence[str], progress: Callable[[str], None]) -> None:
        """Copy files until a further copy would fail, or a signal comes."""
        for number, path in enumerate(paths):
            if self.over or self._cancel.requested:
                break
            if number % _SHOWN == _SHOWN - 1:
                progress(f"copy: {number + 1} of {len(paths)} ignored files")
            self.copy(path)
        if len(paths) >= _SHOWN:
            progress("")

    def copy(self, path: str) -> None:
        """Copy one file or symlink to a path that does not exist."""
        source, target = self._checkout / path, self._top / path
        try:
            self._make_directories(path)
            if source.is_symlink():
                self._copy_link(path, source, target)
            else:
                copy_file(source, target, self._cancel)
                self.count += 1
        except FileExistsError:
            return
        except StoppedError:
            self.over = True
        except OSError as error:
            self.failed[path] = error.strerror or str(error)
            self.over = error.errno in _NO_ROOM

    def _make_directories(self, path: str) -> None:
        """Make the directories above a file, with the same permissions as in the project."""
        for parent in reversed(Path(path).parents):
            directory = self._top / parent
            if not directory.is_dir():
                directory.mkdir()
                directory.chmod(stat.S_IMODE((self._checkout / parent).stat().st_mode) & 0o777 | stat.S_IRWXU)

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


def copy_file(source: Path, target: Path, cancel: CancelToken) -> None:
    """Copy a regular file with its mode and modification time; nothing is left after an error.

    Arguments:
        source: the file.
        target: a path that does not exist.
        cancel: a signal interrupts the copy.

    Raises:
        StoppedError: a signal came.
        OSError: the file cannot be copied.

    """
    with contextlib.ExitStack() as stack:
        # O_NONBLOCK: the path may be a FIFO, and open(2) must not block on it.
        reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, reading)
        status = os.fstat(reading)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(source))
        # Only our user may read it until it has its mode: it may hold a password.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        writing = os.open(target, flags, 0o600)
        stack.callback(os.close, writing)
        try:
            if not _reflink(reading, writing):
                _copy_content(reading, writing, status.st_size, cancel)
            os.fchmod(writing, stat.S_IMODE(status.st_mode) & 0o777)
            os.utime(writing, ns=(status.st_atime_ns, status.st_mtime_ns))
        except BaseException:
            target.unlink(missing_ok=True)
            raise


def _reflink(reading: int, writing: int) -> bool:
    """Let a file share the blocks of another file, as copy-on-write (btrfs, XFS, bcachefs)."""
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError:  # another file system, or one without this feature
        return False
    return True


def _copy_content(reading: int, writing: int, size: int, cancel: CancelToken) -> None:
    """Copy the data of a file, and keep its holes."""
    os.ftruncate(writing, size)
    for start, end in _data(reading, size):
        offset = start
        while offset < end:
            if cancel.requested:
                raise StoppedError("a signal came during the copying")
            chunk = os.pread(reading, min(_CHUNK, end - offset), offset)
            if not chunk:  # another process has truncated it meanwhile
                return
            offset += os.pwrite(writing, chunk, offset)


def _data(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each part of a file with data (``lseek(2)``: SEEK_DATA)."""
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # the file system does not report holes
                yield end, size
            return
        yield start, min(end, size)
