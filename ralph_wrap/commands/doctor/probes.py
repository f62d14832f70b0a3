"""Checks that try a feature: locks, adoption of orphans."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ralph_wrap.commands.doctor.result import DoctorCheck, failed, fine, noted
from ralph_wrap.commands.doctor.storage import existing_parent
from ralph_wrap.state.project import Project
from ralph_wrap.system import files, process_tree

_PR_GET_CHILD_SUBREAPER = 37  # <linux/prctl.h>


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


def subreaper() -> DoctorCheck:
    """Check whether a session can adopt orphaned processes of its agent."""
    name, why = "subreaper", "a session adopts the processes that its agent leaves, and ends them"
    if _in_child(_adopts):
        return fine(name, "a session adopts orphans", why)
    return noted(name, "not available: PID 1 adopts orphans", why, "allow prctl(2) in the seccomp profile")


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
