"""Checks that try a feature: locks, file events, adoption of orphans."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from typing import TYPE_CHECKING

from ralph_wrap.commands.doctor.result import DoctorCheck, failed, fine, noted
from ralph_wrap.commands.doctor.storage import existing_parent
from ralph_wrap.system import files, process_tree
from ralph_wrap.system.inotify import CAME, DirectoryWatch

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
"""File systems that other machines can change without an event in this kernel."""


def locks(project: Project) -> Iterator[DoctorCheck]:
    """Check whether a process sees the lock of another process."""
    why = "the kernel frees a session's lock when the session dies, which proves its death"
    yield _lock("locks", _probe_in(_scratch_directory(project)), why, temporary=True)
    if project.repository is not None:
        why = "sessions that start at once take turns to make worktrees; without this lock they make none"
        yield _lock("repository lock", project.repository.common_dir, why, temporary=False)


def _lock(name: str, path: Path, why: str, *, temporary: bool) -> DoctorCheck:
    directory = path.parent if temporary else path
    fix = "keep the project on a local file system: NFS cannot lock directories, some others lock nothing"
    try:
        lock = files.try_lock(path)
        if lock is None:  # a session holds it: only our processes lock this path
            return fine(name, f"a session holds the lock on {path}", why)
        try:
            seen = _in_child(lambda: files.is_locked(path))
        finally:
            lock.release()
    except OSError as error:
        return failed(name, f"cannot lock in {directory}: {error.strerror}", why, fix)
    finally:
        if temporary:
            with contextlib.suppress(OSError):  # it may not exist
                path.unlink()
    if not seen:
        return failed(name, f"a second process does not see a lock in {directory}", why, fix)
    return fine(name, f"a second process sees a lock in {directory}", why)


def events(project: Project, kind: str) -> DoctorCheck:
    """Check whether the file system reports changes of files at once.

    Arguments:
        kind: the type of the project's file system.

    """
    name, why = "file events", "with them a session sees a stop request at once; without, within 30 s"
    directory = _scratch_directory(project)
    if reason := _event_missing(directory):
        return noted(name, f"none: {reason}", why, "raise fs.inotify.max_user_instances and max_user_watches")
    if kind in _DISTANT:
        found = f"{kind} reports changes of this machine, not those of other machines"
        return noted(name, found, why, "keep the project on a local file system")
    return fine(name, f"reported at once in {directory}", why)


def _event_missing(directory: Path) -> str | None:
    """Return why the system does not report the creation of a file; ``None`` if it does."""
    with DirectoryWatch(directory, events=CAME) as watch:
        if watch.descriptor < 0:
            return "the system has no inotify(7), or reached its limit"
        probe = _probe_in(directory)
        try:
            files.claim(probe, b"")
        except OSError as error:
            return error.strerror or str(error)
        probe.unlink()
        return None if watch.changed() else "the system did not report the creation of a file"


def subreaper() -> DoctorCheck:
    """Check whether a session can adopt orphaned processes of its agent."""
    name, why = "subreaper", "a session adopts the processes that its agent leaves, and ends them"
    if sys.platform == "linux" and _in_child(_adopts):
        return fine(name, "a session adopts orphans", why)
    return noted(name, "not available: PID 1 adopts orphans", why, "run it on Linux, with prctl(2) allowed")


def _adopts() -> bool:
    process_tree.become_subreaper()
    answer = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return answer.value == 1


def _scratch_directory(project: Project) -> Path:
    """Return the innermost existing directory of those above the records."""
    directories = (project.root / ".ralph" / "run", project.root / ".ralph")
    inner = next((path for path in directories if path.is_dir() and not path.is_symlink()), project.root)
    return existing_parent(inner)  # the root of a bare repository is made by the first session


def _probe_in(directory: Path) -> Path:
    return directory / f".ralph-wrap-doctor-{os.urandom(8).hex()}"


def _in_child(probe: Callable[[], bool]) -> bool:
    """Return the answer of a second process.

    It is a fork and not a new program: only root may be able to read Python's files, and we gave up root.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with contextlib.suppress(OSError):
                status = 0 if probe() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
