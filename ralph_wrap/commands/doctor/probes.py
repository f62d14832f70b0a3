"""What has to be tried: locks, file events, adoption of orphans."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from typing import TYPE_CHECKING

from ralph_wrap.commands.doctor.result import Check, failed, fine, noted
from ralph_wrap.system import files, process_tree
from ralph_wrap.system.inotify import CAME, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ralph_wrap.state.project import Project

_PR_GET_CHILD_SUBREAPER = 37  # <linux/prctl.h>
_DISTANT = {
    "9p",
    "cifs",
    "fakeowner",
    "fuse.grpcfuse",
    "fuse.osxfs",
    "fuse.sshfs",
    "nfs",
    "nfs4",
    "smb3",
    "virtiofs",
}
"""File systems that others change without this kernel seeing it."""


def locks(place: Project) -> Iterator[Check]:
    """Tell whether a lock that one process holds is seen by another one."""
    why = "the kernel frees a session's lock when it dies: that is how its death is proved"
    yield _lock("locks", _probe_in(_scratch_directory(place)), why, made=True)
    if place.repository is not None:
        why = "sessions that start at once make their worktrees in turn; without this lock there are none"
        yield _lock("repository lock", place.repository.common_dir, why, made=False)


def _lock(name: str, path: Path, why: str, *, made: bool) -> Check:
    place = path.parent if made else path
    fix = "keep the project on a local file system: NFS has no locks on directories, some others none at all"
    try:
        lock = files.try_lock(path)
        if lock is None:  # a session holds it: of the file, nobody but us knows
            return fine(name, f"a session holds the one on {path}", why)
        try:
            seen = _in_child(lambda: files.is_locked(path))
        finally:
            lock.release()
    except OSError as error:
        return failed(name, f"no lock can be had in {place}: {error.strerror}", why, fix)
    finally:
        if made:
            with contextlib.suppress(OSError):  # it could not be made
                path.unlink()
    if not seen:
        return failed(name, f"a lock held in {place} is not seen by a second process", why, fix)
    return fine(name, f"one held in {place} is seen by a second process", why)


def events(place: Project, kind: str) -> Check:
    """Tell whether changes of files are told at once.

    Arguments:
        kind: of its file system.

    """
    name, why = "file events", "through them a session hears at once that it is to stop; without, within 30 s"
    directory = _scratch_directory(place)
    if reason := _event_missing(directory):
        return noted(name, f"none: {reason}", why, "raise fs.inotify.max_user_instances and max_user_watches")
    if kind in _DISTANT:
        found = f"{kind} tells of changes made here, not of those made by others"
        return noted(name, found, why, "keep the project on a local file system")
    return fine(name, f"told at once in {directory}", why)


def _event_missing(directory: Path) -> str | None:
    """Return why the creation of a file is not told."""
    with Watch(directory, events=CAME) as watch:
        if watch.descriptor < 0:
            return "the system has no inotify(7), or no more of it"
        probe = _probe_in(directory)
        try:
            files.claim(probe, b"")
        except OSError as error:
            return error.strerror or str(error)
        probe.unlink()
        return None if watch.changed() else "the creation of a file was not told"


def subreaper() -> Check:
    """Tell whether orphans of an agent can be made to come to its session."""
    name, why = "subreaper", "what an agent leaves running comes to its session, which ends it"
    if sys.platform == "linux" and _in_child(_adopts):
        return fine(name, "orphans come to their session", why)
    return noted(name, "not to be had: orphans go to PID 1", why, "run it on Linux, with prctl(2) allowed")


def _adopts() -> bool:
    process_tree.become_subreaper()
    answer = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return answer.value == 1


def _scratch_directory(place: Project) -> Path:
    """Return the innermost directory that is there of those that records are kept in."""
    places = (place.root / ".ralph" / "run", place.root / ".ralph")
    return next((path for path in places if path.is_dir() and not path.is_symlink()), place.root)


def _probe_in(directory: Path) -> Path:
    return directory / f".ralph-wrap-doctor-{os.urandom(8).hex()}"


def _in_child(ask: Callable[[], bool]) -> bool:
    """Return the answer of a second process.

    A fork, no other program: Python may stand where only root can read, and root was given up.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with contextlib.suppress(OSError):
                status = 0 if ask() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
