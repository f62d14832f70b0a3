"""The trash: worktrees that are saved and that git has forgotten, until their files are deleted.

A name proves nothing: a user can move a directory of their own to any place here. So a directory is deleted
only if it holds a token, a file that names the directory itself. :func:`discard` writes the token once
nothing may bring the directory back, and the deletion takes the token away last.

Each deletion runs in the background (see ``deletion``) and holds the ``flock(2)`` of its directory. If it
is killed, the next :func:`empty_trash` goes on with it, and reports that.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.git import decode, pointer
from ralph_wrap.state import ids
from ralph_wrap.system import delete_tree
from ralph_wrap.worktree.ownership import MARK, SessionMark, mark_text
from ralph_wrap.worktree.trash import deletion
from ralph_wrap.worktree.trash.deletion import OpenEntry

LEAVING_SUFFIX = ".leaving"
"""The suffix of a directory that may still go back: its registration is not dropped yet."""

TOKEN = ".ralph-wrap-trash"  # noqa: S105 -- no password
"""A file in each directory that may be deleted; it holds the directory's name."""

_LARGEST = 4096  # bytes of a token, or of a ``.git`` file
_AT_ONCE = 32  # directories for one deletion process: each needs two descriptors


class EmptiedTrash(NamedTuple):
    """The directories in the trash.

    Attributes:
        resumed: directories whose deletion was interrupted, and continues now.
        foreign: directories that ralph-wrap did not put there; they stay.

    """

    resumed: tuple[Path, ...]
    foreign: tuple[Path, ...]


def new_name() -> str:
    """Return a name for a directory in the trash that is no session's: it has the form of a session id."""
    return ids.session_id(os.urandom(2).hex(), time.time())


def is_name(name: str) -> bool:
    """Return whether a directory in the trash can be ours by its name, a session id or :func:`new_name`."""
    return ids.is_session_id(name)


def discard(directory: Path, aside: Path, is_ours: Callable[[Callable[[str], str]], bool]) -> None:
    """Delete a directory of ours in the background. Git has unregistered it already, so errors are ignored.

    Arguments:
        directory: the directory to delete.
        aside: its path in the trash; if the deletion is killed, the next start finds it there.
        is_ours: returns whether the directory is ours. Its argument is a function that reads a file in the
            directory. The directory stays open, so a replacement at its path is not deleted.

    """
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        entry = _open(directory, stack)
        if not is_ours(lambda name: _read(entry, name)):
            return
        with contextlib.suppress(OSError):  # a ``Worktree`` block holds the lock itself
            fcntl.flock(entry.directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        deletion.start([_set_aside(entry, aside, stack)], TOKEN)


def discard_clone(directory: Path, aside: Path, mark: SessionMark) -> None:
    """Delete a clone whose work its replica holds, as :func:`discard` does; the mark names its session."""
    discard(directory, aside, lambda read: read(f".git/{MARK}") == mark_text(mark))


def discard_worktree(directory: Path, aside: Path, registration: Path, path: Path) -> None:
    """Delete a worktree that git has unregistered, as :func:`discard` does.

    Arguments:
        aside: its path in the trash.
        registration: the registration that its ``.git`` file must name.
        path: its path before it was moved.

    """
    discard(directory, aside, lambda read: pointer.git_dir_in(read(".git"), path) == registration)


def write_token(directory: Path) -> None:
    """Write the token of a new directory: it may be deleted later, with all files that come into it.

    Raises:
        OSError: the token cannot be written.

    """
    with contextlib.ExitStack() as stack:
        entry = _open(directory, stack)
        _write_token(entry, entry.name)


def has_token(directory: Path) -> bool:
    """Return whether a directory holds its own token."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        return _read(_open(directory, stack), TOKEN) == directory.name
    return False


def empty_trash(trash: Path) -> EmptiedTrash:
    """Delete, in the background, the directories that earlier deletions have left.

    Arguments:
        trash: the trash of the project. Directories that could not be moved there are next to its worktrees.

    Raises:
        OSError: the trash cannot be read, or is a symlink.

    """
    if trash.is_symlink():
        raise OSError(errno.ELOOP, "the trash is a symlink", str(trash))
    found = sorted([*(path for path in trash.iterdir() if is_name(path.name)), *_set_aside_in(trash)])
    resumed: list[Path] = []
    foreign: list[Path] = []
    for begin in range(0, len(found), _AT_ONCE):
        with contextlib.ExitStack() as stack:
            entries = [_look(path, stack, foreign) for path in found[begin : begin + _AT_ONCE]]
            going = [entry for entry in entries if entry is not None]
            resumed += [path for path, entry in zip(found[begin:], entries, strict=False) if entry]
            if going:
                deletion.start(going, TOKEN)
    return EmptiedTrash(tuple(resumed), tuple(foreign))


def _set_aside_in(trash: Path) -> list[Path]:
    places = (trash, *(trash.parent.parent / name for name in ("worktrees", "clones", ".")))
    return [path for directory in places for path in directory.glob(f"*{LEAVING_SUFFIX}")]


def _look(path: Path, stack: contextlib.ExitStack, foreign: list[Path]) -> OpenEntry | None:
    """Return a directory that may be deleted, and that no other process deletes now."""
    with contextlib.suppress(BlockingIOError, FileNotFoundError), contextlib.ExitStack() as attempt:
        try:
            entry = _open(path, attempt)
        except OSError:
            foreign += [path] if is_name(path.name) and os.path.lexists(path) else []
            return None
        if _read(entry, TOKEN) == path.name:
            fcntl.flock(entry.directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            stack.push(attempt.pop_all())
            return entry
        if is_name(path.name):
            try:
                # An empty directory is what a deletion leaves that was killed before its last step.
                os.rmdir(path.name, dir_fd=entry.parent)
            except OSError:
                foreign.append(path)
    return None


def _open(path: Path, stack: contextlib.ExitStack) -> OpenEntry:
    parent = os.open(path.parent, delete_tree.OPEN_DIRECTORY)
    stack.callback(os.close, parent)
    directory = os.open(path.name, delete_tree.OPEN_DIRECTORY, dir_fd=parent)
    stack.callback(os.close, directory)
    return OpenEntry(parent, directory, path.name)


def _set_aside(entry: OpenEntry, aside: Path, stack: contextlib.ExitStack) -> OpenEntry:
    """Move a directory into the trash and write its token; if it cannot be moved, write the token there."""
    delete_tree.allow_owner(entry.directory)
    try:
        trash = os.open(aside.parent, delete_tree.OPEN_DIRECTORY)
        stack.callback(os.close, trash)
        _write_token(entry, aside.name)
        os.rename(entry.name, aside.name, src_dir_fd=entry.parent, dst_dir_fd=trash)
    except OSError:  # another file system, or a full disk
        with contextlib.suppress(OSError):
            _write_token(entry, entry.name)
        return entry
    return OpenEntry(trash, entry.directory, aside.name)


def _write_token(entry: OpenEntry, name: str) -> None:
    try:
        os.unlink(TOKEN, dir_fd=entry.directory)
    except FileNotFoundError:
        pass
    except OSError:  # an agent has made a directory with this name
        moved = f"{TOKEN}-{os.urandom(4).hex()}"
        os.rename(TOKEN, moved, src_dir_fd=entry.directory, dst_dir_fd=entry.directory)
    delete_tree.write_new(TOKEN, entry.directory, name.encode())


def _read(entry: OpenEntry, name: str) -> str:
    """Return the content of a small regular file, without its last newline; empty for any other file."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=entry.directory)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return decode(os.read(descriptor, _LARGEST)).removesuffix("\n").replace("\0", "?")
    finally:
        os.close(descriptor)
