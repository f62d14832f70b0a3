"""Find again what a dead session has left of its worktree: whole, half-made or half-removed.

It is found by its registration alone (see ``ownership``). How far its owner had come (``create`` and
``remove`` tell the steps) decides what is done:

- a registration without a way back (``gitdir``), or a directory without a ``.git`` file: killed in the middle
  of ``git worktree add``. Only before any agent ran is that taken apart;
- both, naming each other: a worktree, however much of it is checked out;
- the directory in the trash, still registered: it had been saved, but the last look at it is missing. It goes
  back to its place, and everything is done anew;
- the directory in the trash, not registered any more, or no more than half: the last look was taken. It is
  deleted;
- a warm worktree whose registration bears the session's mark: killed while it was taken out of the pool;
- a registration that names the same place under another path: made where the project is mounted elsewhere.
  Its owner is dead, so it is given our path.

Everything else was moved or replaced by a user. That is reported, and nothing of it is touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from ralph_wrap.errors import RefusedError
from ralph_wrap.git import decode, file_system_config, pointer
from ralph_wrap.system import files
from ralph_wrap.worktree import ownership
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.managed.find import directory_of
from ralph_wrap.worktree.managed.metadata import marked
from ralph_wrap.worktree.model import WARM, LinkedWorktree
from ralph_wrap.worktree.ownership import SessionMark, WorktreeOwner, session_lock
from ralph_wrap.worktree.register import pointers_to
from ralph_wrap.worktree.remove import LEAVING, is_half_dropped, leaving_places
from ralph_wrap.worktree.trash import discard_worktree, is_name
from ralph_wrap.worktree.warm import REASON, complete

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.git import Repository
    from ralph_wrap.state.registry import SessionRecord

_TAIL = 3  # parts of a path: .ralph/worktrees/<session>


def adopt(repository: Repository, record: SessionRecord, *, path: Path, trash: Path) -> LinkedWorktree | None:
    """Return the worktree of a dead session, ``None`` if there is none (any more).

    Arguments:
        repository: the project's.
        record: of the session; its lock is ours.
        path: where the worktree belongs.
        trash: where it goes on its way out.

    Raises:
        RefusedError: something else is in its place, or it is somewhere else. Nothing of that is touched.
        OSError: something cannot be read or moved; nothing is lost.

    """
    assert record.branch is not None
    assert record.base is not None
    aside = trash / record.session
    with repository_lock(repository.common_dir):
        registrations = repository.common_dir / "worktrees"
        registration = registrations / path.name
        if warm := _begun_to_take(registrations, path, record):
            _complete(warm, path, trash.parent, record)
        leaving = _leaving(path, aside, registration)
        if leaving and _is_half_dropped(registration, path, record):
            shutil.rmtree(registration, ignore_errors=True)
        if not _is_sessions(registration, path, leaving, record):
            if record.state == "starting":
                take_apart(registration, path, session_lock(record.session), record.branch)
            _require_gone(registration)
            if leaving:
                discard_worktree(leaving, aside, registration, path)
            return None
        if leaving:
            leaving.rename(path)
        if record.state == "starting" and _is_hollow(registration, path) and _names(registration, path):
            _remove_registration(registration)
            take_apart(registration, path, session_lock(record.session), record.branch)
            return None
    return LinkedWorktree(
        path=path,
        registration=registration,
        common_dir=repository.common_dir,
        branch=record.branch,
        base=record.base,
        # A branch of any other name may be somebody's own.
        branch_created=record.branch == f"ralph/{record.id}",
        config=file_system_config(file_mode=record.file_mode, symlinks=record.symlinks),
        owner=WorktreeOwner(session_lock(record.session), ownership.read_mark(registration)),
        stays="its registration was unlocked since an earlier version of ralph-wrap made it"
        if ownership.was_unlocked(registration, record)
        else None,
    )


def _begun_to_take(registrations: Path, path: Path, record: SessionRecord) -> Path | None:
    """Return the registration of a warm worktree that the session had begun to take."""
    mark = SessionMark(record.session, str(record.branch))
    for registration in sorted(registrations.glob(WARM.pattern)):
        if ownership.read_mark(registration) == mark or (
            not record.marked and _names(registration, path) and _is_locked_by_us(registration, record)
        ):
            return registration
    return None


def _is_locked_by_us(registration: Path, record: SessionRecord) -> bool:
    return ownership.is_locked_for(registration, REASON, session_lock(record.session))


def _complete(warm: Path, path: Path, run: Path, record: SessionRecord) -> None:
    """Go on with a warm worktree that a session had begun to take."""
    owner = WorktreeOwner(session_lock(record.session), SessionMark(record.session, str(record.branch)))
    complete(warm, run / "pool", path, str(record.branch), owner)


def _is_sessions(registration: Path, path: Path, leaving: Path | None, record: SessionRecord) -> bool:
    """Tell whether a registration is the session's, and have it name our path if it names the same place.

    Raises:
        RefusedError: it is the session's, but another directory is in the place of the worktree.
        OSError: it does not say which directory is its own.

    """
    if registration.is_symlink() or not registration.is_dir():
        return False
    if not ownership.belongs_to(registration, record):
        return False
    try:
        content = files.read(registration / pointer.BACK)
    except FileNotFoundError:
        return False
    directory = leaving or path
    if pointer.is_below_some_mount(content, path, _TAIL) and ownership.names_registration(
        directory, registration, path=path
    ):
        ours = pointer.back_to(path)
        if content != ours:
            files.replace(registration / pointer.BACK, ours)
        return True
    if not os.path.lexists(directory) or _is_hollow(registration, path):
        return True
    raise moved_or_replaced(path)


def moved_or_replaced(path: Path, registration: Path | None = None) -> RefusedError:
    """Return the error that says that something else is in the place of a session's worktree.

    Arguments:
        path: the place.
        registration: that the worktree had, if git has forgotten it.

    """
    if registration is not None and ownership.names_registration(path, registration):
        return RefusedError(
            f"its worktree was moved or replaced: git has forgotten {path}; nothing there is touched",
            "move it to another place, where its files stay as they are; then: ralph-wrap sweep",
        )
    return RefusedError(
        f"its worktree was moved or replaced: {ownership.describe(path)}; nothing there is touched",
        f"move that to another place, and the session's own worktree to {path}; then: ralph-wrap sweep",
    )


def _names(registration: Path, path: Path) -> bool:
    with contextlib.suppress(OSError):
        return ownership.names_directory(registration, path)
    return False


def _is_half_dropped(registration: Path, path: Path, record: SessionRecord) -> bool:
    """Tell whether git has begun to delete the registration of the session."""
    if registration.is_symlink() or not registration.is_dir():
        return False
    if not is_half_dropped(registration, marked=record.marked):
        return False
    if ownership.read_mark(registration) is not None:
        return ownership.belongs_to(registration, record)
    # Whatever is left of it must not say that it is somebody else's.
    lock = ownership.lock_of(registration)
    foreign_lock = lock is not None and not ownership.is_locked_for(
        registration, session_lock(record.session)
    )
    foreign_path = (registration / pointer.BACK).exists() and not _names(registration, path)
    return not foreign_lock and not foreign_path


def bring_back(common_dir: Path, worktrees: Path, trash: Path) -> None:
    """Put a worktree that bears a mark back in its place if whoever removed it was killed in the middle.

    Arguments:
        common_dir: of the repository.
        worktrees: where ours are.
        trash: where they go on their way out.

    Raises:
        OSError: it cannot be told, or not be done; nothing is lost.

    """
    if not any((registration / LEAVING).is_file() for registration in marked(common_dir)):
        return
    with repository_lock(common_dir):
        for registration in marked(common_dir):
            try:
                name = decode(files.read(registration / LEAVING))
            except OSError:
                continue
            path = directory_of(registration, worktrees)
            if not is_name(name):
                continue
            if leaving := _leaving(path, trash / name, registration):
                leaving.rename(path)
                # Not otherwise: whoever wrote it may live, and be about to begin.
                (registration / LEAVING).unlink()


def _leaving(path: Path, aside: Path, registration: Path) -> Path | None:
    """Return where a worktree is that is on its way out; a directory of anybody else is passed over."""
    if os.path.lexists(path):
        return None
    for place in leaving_places(path, aside):
        if place.is_dir() and ownership.names_registration(place, registration, path=path):
            return place
    return None


def _require_gone(registration: Path) -> None:
    """Make sure that there is no registration at all: one that cannot be read must not pass for none."""
    with contextlib.suppress(OSError):
        registration.rmdir()  # empty: git was killed before its last step of deleting it file by file
    if os.path.lexists(registration):
        raise RefusedError(
            f"its worktree was moved or replaced: {registration} does not say that it is the session's",
            "git worktree list",
        )


def _is_hollow(registration: Path, path: Path) -> bool:
    """Tell whether a directory is not there, or holds nothing but a ``.git`` file of ours."""
    return not os.path.lexists(path) or ownership.is_begun(path, pointers_to(registration, path))


def _remove_registration(registration: Path) -> None:
    """Remove a registration, and last of all what says that it is ours: killed here, the next one goes on."""
    lock = registration / "locked"
    for entry in [path for path in registration.iterdir() if path != lock]:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    lock.unlink(missing_ok=True)
    registration.rmdir()


def take_apart(registration: Path, path: Path, lock: str, branch: str | None) -> None:
    """Remove what ``git worktree add`` had begun with when it was killed, before it could hold anything.

    Under the repository's lock, so that nobody is at it.

    Arguments:
        registration: where it is made. If it is another worktree's, nothing is removed.
        path: the worktree's directory. One that holds anything else stays.
        lock: how the reason begins for which we lock it.
        branch: that was to be checked out; ``None`` for a detached HEAD.

    Raises:
        OSError: something of it cannot be removed.

    """
    if os.path.lexists(registration):
        if not ownership.is_unfinished(registration, lock, branch):
            return
        _remove_registration(registration)
    if ownership.is_begun(path, pointers_to(registration, path)):
        for entry in path.iterdir():
            entry.unlink()
        path.rmdir()
