"""Whose worktree a registration is.

A path proves nothing: a user can move a worktree or a directory of their own to any place. Git knows a
worktree by its registration, ``.git/worktrees/<name>`` (gitrepository-layout(5)), so every decision starts
there. A worktree is a session's only if all of this holds:

- the registration has the session's id for its name;
- the mark in it, a file that only ralph-wrap writes, names the session and the branch of its record;
- its ``gitdir`` names the directory, and the ``.git`` file there names the registration.

The lock says whether ralph-wrap may remove the worktree. A user who locks a registration with a reason of
their own keeps it: its work is saved, and it stays. A user who unlocks it gives it back.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap.git import decode, pointer
from ralph_wrap.git.oid import is_oid
from ralph_wrap.state.registry import SessionRecord
from ralph_wrap.system import files
from ralph_wrap.system.document import DocumentFormat, convert_fields
from ralph_wrap.system.log import one_line

MARK = "ralph-wrap-session"
"""The name of the mark in a registration."""

ANCHOR = "ralph-wrap-anchor"
"""In a registration: a hard link to the ``.git`` file of its worktree."""

CLONE = "ralph-wrap-clone"
"""In a registration: its worktree is a clone, and the repository is the replica of the clone."""

_FORMAT = DocumentFormat(version=1)
_LONGEST_LOCK = 4096  # bytes of a reason
# builtin/worktree.c: what git itself writes while it adds a worktree, before we write our reason.
_LOCKS_OF_GIT = ("initializing", "added with --lock")
_HEAD_IN_REFTABLE = "ref: refs/heads/.invalid"  # git's file HEAD where refs are in tables


class SessionMark(NamedTuple):
    """Whose a registration is: the id of the session, and the branch that it was made for."""

    session: str
    branch: str


UNREADABLE = SessionMark("", "")
"""A mark that is there and cannot be understood. It is no session's."""


class WorktreeOwner(NamedTuple):
    """What a registration must say if ralph-wrap is to remove its worktree.

    Attributes:
        lock: how the reason of its lock begins.
        mark: of a session; ``None`` if it must have none.

    """

    lock: str
    mark: SessionMark | None = None


def session_lock(session: str) -> str:
    """Return the reason for which the registration of a session is locked."""
    return f"ralph-wrap session {session}"


def write_mark(registration: Path, mark: SessionMark) -> None:
    """Write the mark of a registration.

    Raises:
        OSError: the registration is as it was before.

    """
    files.replace(registration / MARK, _FORMAT.encode(mark._asdict()), sync=False)


def mark_text(mark: SessionMark) -> str:
    """Return the content of the file with a mark, without its last newline."""
    return decode(_FORMAT.encode(mark._asdict())).removesuffix("\n")


def read_mark(registration: Path) -> SessionMark | None:
    """Return the mark of a registration, ``None`` if it has none or an empty one."""
    try:
        content = files.read(registration / MARK)
        return _FORMAT.decode(content, _mark) if content else None  # empty: a power failure, or a kill
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return UNREADABLE


def _mark(loaded: Mapping[str, Any]) -> SessionMark:
    return convert_fields(loaded, SessionMark)


def write_anchor(registration: Path, path: Path) -> None:
    """Link the ``.git`` file of a worktree into its registration.

    The number of its links then shows whether it still exists, wherever the user has moved the worktree. On
    another file system there is no such link, and a missing disk is no deleted worktree.
    """
    with contextlib.suppress(OSError):
        (registration / ANCHOR).unlink(missing_ok=True)  # of a file that an agent has deleted
        (registration / ANCHOR).hardlink_to(path / ".git")


def is_unlinked(registration: Path) -> bool:
    """Return whether the ``.git`` file of a worktree was deleted; a moved one still has its two links.

    Raises:
        OSError: there is no anchor.

    """
    anchor = (registration / ANCHOR).lstat()
    return stat.S_ISREG(anchor.st_mode) and anchor.st_nlink == 1


def lock_of(registration: Path) -> str | None:
    """Return the reason for which a registration is locked, ``None`` if it is not locked."""
    try:
        return decode(files.read(registration / "locked", _LONGEST_LOCK)).strip()
    except FileNotFoundError:
        return None
    except OSError:
        return "for a reason that cannot be read"


def is_locked_for(registration: Path, *reasons: str) -> bool:
    """Return whether a registration is locked for a reason that begins like one of these."""
    return (lock_of(registration) or "").startswith(reasons)


def why_not_removable(registration: Path, owner: WorktreeOwner) -> str | None:
    """Return why a registration must stay although its work is saved, ``None`` if it may go."""
    lock = lock_of(registration)
    if lock is None or lock.startswith(owner.lock) or lock in _LOCKS_OF_GIT:
        return None
    return f"its user has locked it: {lock or 'no reason given'} (git worktree unlock gives it back)"


def belongs_to(registration: Path, record: SessionRecord) -> bool:
    """Return whether a registration is the one that was made for a session.

    Arguments:
        registration: that has the session's id for its name.
        record: of the session.

    """
    mark = read_mark(registration)
    if mark is not None:
        return mark == SessionMark(record.session, str(record.branch))
    if record.state != "starting":
        return False
    # It was killed after git had added the worktree, and before it wrote the mark.
    named = {f"ref: refs/heads/{record.branch}", record.base, _HEAD_IN_REFTABLE}
    return _head_of(registration) in named and _is_new(registration, session_lock(record.session))


def is_unfinished(registration: Path, lock: str, branch: str | None, base: str | None = None) -> bool:
    """Return whether a registration is half-made: by us, or by a ``git worktree add`` that was killed for us.

    Arguments:
        registration: has the name that we gave it.
        lock: how the reason of our lock begins.
        branch: that was to be checked out; ``None`` for a detached HEAD.
        base: the commit of the branch, at which HEAD may still be detached.

    """
    if registration.is_symlink() or not registration.is_dir() or (registration / "index").exists():
        return False
    if not any(registration.iterdir()):  # the directory is made first, and then the lock
        return True
    head = _head_of(registration)
    named = branch is None or f"ref: refs/heads/{branch}".startswith(head) or _is_none(head)
    return (named or head in {base, _HEAD_IN_REFTABLE}) and _is_new(registration, lock)


def _is_none(head: str) -> bool:
    """Return whether a HEAD names no commit: git writes that before it checks out a branch."""
    return is_oid(head) and not head.strip("0")


def names_directory(registration: Path, path: Path) -> bool:
    """Return whether a registration names a directory as its worktree.

    Raises:
        OSError: it does not say.

    """
    return pointer.real(pointer.git_file_of(registration)) == path / ".git"


def others_naming(registration: Path, path: Path) -> list[Path]:
    """Return the other registrations of the repository that name a directory.

    Git commands take a path, and the first registration that names it.
    """
    found = []
    for other in sorted(registration.parent.glob(f"*/{pointer.BACK}")):
        with contextlib.suppress(OSError):
            if other.parent != registration and names_directory(other.parent, path):
                found.append(other.parent)
    return found


def names_registration(directory: Path, registration: Path, *, path: Path | None = None) -> bool:
    """Return whether the ``.git`` file of a directory names a registration.

    Arguments:
        directory: where it is now.
        registration: the one.
        path: where the directory belongs, if it has been moved: the file holds a relative path.

    """
    if directory.is_symlink():
        return False
    if (registration / CLONE).is_file():
        return is_clone_of(directory / ".git", read_mark(registration))
    try:
        return pointer.read(directory, path) == registration
    except OSError:
        return False


def is_clone_of(git_dir: Path, mark: SessionMark | None) -> bool:
    """Return whether the repository of a clone has the mark of a session."""
    return mark not in {None, UNREADABLE} and not git_dir.is_symlink() and read_mark(git_dir) == mark


def is_begun(directory: Path, pointers: Collection[bytes]) -> bool:
    """Return whether a directory holds no more than a ``.git`` file of ours, perhaps half-written.

    Arguments:
        pointers: what we may have written to that file.

    """
    if directory.is_symlink() or not directory.is_dir() or os.path.ismount(directory):
        return False
    own = directory / ".git"
    if not {*directory.iterdir()} <= {own, *files.temporaries(own)}:
        return False
    if not os.path.lexists(own):
        return True
    try:
        content = files.read(own)
    except OSError:
        return False
    return any(whole.startswith(content) for whole in pointers)


def describe(path: Path) -> str:
    """Return what is at a path, for a message that says why it is not touched."""
    if path.is_symlink():
        return one_line(f"{path} is a symlink to {path.readlink()}")
    if not os.path.lexists(path):
        return f"nothing is at {path}"
    try:
        content = decode(files.read(path / ".git", pointer.LONGEST)).strip()
    except OSError:
        content = ""
    if named := pointer.target(content):
        return one_line(f"{path} is the worktree of {named}")
    return f"{path} holds something else"


def _is_new(registration: Path, lock: str) -> bool:
    """Return whether a lock is ours or git's own first one, perhaps cut short while it was written."""
    reason = lock_of(registration)
    return reason is not None and (
        reason.startswith(lock) or any(words.startswith(reason) for words in (lock, *_LOCKS_OF_GIT))
    )


def _head_of(registration: Path) -> str:
    try:
        return decode(files.read(registration / "HEAD")).strip()
    except OSError:
        return ""
