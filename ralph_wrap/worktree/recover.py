"""Find the worktree of a dead session again: whole, half-made or half-removed.

Only its registration identifies it (see ``ownership``). The last step of its owner (``create`` and ``remove``
list the steps) decides what this module does:

- A registration without a ``gitdir`` file, or a directory without a ``.git`` file: the session was killed
  while it registered the worktree. Both are removed, but only if no agent ran yet.
- Both exist and name each other: a worktree, even if only a part of it is checked out.
- The directory is in the trash and still registered: it was saved, but the last check is missing. It goes
  back to its path, and the sweep saves and removes it again.
- The directory is in the trash, and the registration is gone or incomplete: the last check was done. The
  directory is deleted.
- A warm worktree whose registration has the session's mark: the session was killed while it took the worktree
  out of the pool.
- The registration names the same directory under another path: the session ran where the project has another
  mount point. Its owner is dead, so the registration gets our path.

Anything else was moved or replaced by a user. The error says so, and this module touches none of it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ralph_wrap.errors import RefusedError
from ralph_wrap.git import Git, Repository, decode, file_system_config, pointer
from ralph_wrap.git.quarantine import release
from ralph_wrap.state.registry import SessionRecord
from ralph_wrap.system import files
from ralph_wrap.system.log import Commands
from ralph_wrap.system.text import command
from ralph_wrap.worktree import ownership
from ralph_wrap.worktree.git_file import free_place, is_same_directory, leads_elsewhere
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.managed.find import directory_of
from ralph_wrap.worktree.managed.metadata import marked
from ralph_wrap.worktree.model import WARM, LinkedWorktree
from ralph_wrap.worktree.ownership import SessionMark, WorktreeOwner, session_lock
from ralph_wrap.worktree.register import pointer_to, pointers_to, remove_unfinished
from ralph_wrap.worktree.remove import (
    LEAVING,
    WorktreeOutcome,
    drop_registration,
    is_half_dropped,
    leaving_places,
)
from ralph_wrap.worktree.save.commits import named_objects
from ralph_wrap.worktree.save.index import scratch_in
from ralph_wrap.worktree.save.one_tree import save_snapshot, save_without_files
from ralph_wrap.worktree.save.registration import is_replaced
from ralph_wrap.worktree.save.result import SaveRequest
from ralph_wrap.worktree.save.sync import sync_repository
from ralph_wrap.worktree.trash import discard_worktree, is_name
from ralph_wrap.worktree.warm import complete

_TAIL = 3  # parts of a path: .ralph/worktrees/<session>


def adopt(repository: Repository, record: SessionRecord, *, path: Path, trash: Path) -> LinkedWorktree | None:
    """Return the worktree of a dead session, ``None`` if it has none.

    Arguments:
        repository: the project's repository.
        record: the record of the session; this process has its lock.
        path: the path of the session's worktree.
        trash: the trash, to which a removal moves it.

    Raises:
        RefusedError: another directory is at its path, or it is at another path. Both stay as they are.
        OSError: a file cannot be read or moved; no work is lost.

    """
    assert record.branch is not None
    assert record.base is not None
    aside = trash / record.session
    with repository_lock(repository.common_dir):
        registrations = repository.common_dir / "worktrees"
        registration = registrations / path.name
        if warm := _begun_to_take(registrations, record):
            _complete(warm, path, trash.parent, record)
        leaving = _leaving(path, aside, registration)
        if leaving and _is_half_dropped(registration, path, record):
            files.remove_tree(registration)
        if not _is_sessions(registration, path, leaving, record):
            if record.state == "starting":
                take_apart(registration, path, session_lock(record.session), record.branch, record.base)
            _require_gone(registration)
            if leaving:
                discard_worktree(leaving, aside, registration, path)
            return None
        if leaving:
            leaving.rename(path)
        if record.state == "starting" and _is_hollow(registration, path) and _names(registration, path):
            remove_unfinished(registration)
            take_apart(registration, path, session_lock(record.session), record.branch, record.base)
            return None
    return LinkedWorktree(
        path=path,
        registration=registration,
        common_dir=repository.common_dir,
        branch=record.branch,
        base=record.base,
        # A branch with any other name may be the user's own, and a resumed one has earlier work.
        branch_created=record.branch == f"ralph/{record.id}" and record.resumes is None,
        config=file_system_config(file_mode=record.file_mode, symlinks=record.symlinks),
        owner=WorktreeOwner(session_lock(record.session), ownership.read_mark(registration)),
        clone=(registration / ownership.CLONE).is_file(),
        inode=record.worktree_inode,
        born=record.worktree_born,
    )


def _begun_to_take(registrations: Path, record: SessionRecord) -> Path | None:
    """Return the registration of a warm worktree that the session began to take."""
    mark = SessionMark(record.session, str(record.branch))
    found = sorted(registrations.glob(WARM.pattern))
    return next((registration for registration in found if ownership.read_mark(registration) == mark), None)


def _complete(warm: Path, path: Path, run: Path, record: SessionRecord) -> None:
    """Complete the move of a warm worktree that a session began to take."""
    owner = WorktreeOwner(session_lock(record.session), SessionMark(record.session, str(record.branch)))
    complete(warm, run / "pool", path, str(record.branch), owner)


def _is_sessions(registration: Path, path: Path, leaving: Path | None, record: SessionRecord) -> bool:
    """Return whether a registration is the session's; write our path to it if it has another mount point.

    Raises:
        RefusedError: it is the session's, but another directory is at the path of the worktree.
        OSError: its file ``gitdir`` cannot be read.

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
    names_path = pointer.is_below_some_mount(content, path, _TAIL)
    if names_path and record.state == "starting":
        _complete_pointer(registration, path, content)
    is_same = (
        leaving is None
        and is_same_directory(path, record.worktree_inode, record.worktree_born)
        and not leads_elsewhere(path, registration)
        and not ownership.others_naming(registration, path)
    )
    if names_path and (is_same or ownership.names_registration(directory, registration, path=path)):
        ours = pointer.gitdir_content(path)
        if content != ours:
            files.replace(registration / pointer.BACK, ours)
        return True
    if not os.path.lexists(directory) or _is_hollow(registration, path):
        return True
    raise moved_or_replaced(path, record)


def _complete_pointer(registration: Path, path: Path, content: bytes) -> None:
    """Write the ``.git`` file of a worktree that git had begun to make at another mount point.

    git writes an absolute path to the file, which is wrong here. A directory with any other file stays as it
    is. If another directory exists at the absolute path of the worktree, a user has moved the worktree there.
    Then nothing is written.

    Arguments:
        content: of the file ``gitdir``, which has the path at that mount point.

    """
    earlier_path = Path(decode(content)).parent
    earlier_registration = os.path.normpath(earlier_path / os.path.relpath(registration, path))
    if not ownership.is_begun(path, (pointer.git_file_content(earlier_registration),)):
        return
    if not os.path.lexists(earlier_path) or os.path.samestat(earlier_path.lstat(), path.lstat()):
        files.replace(path / ".git", pointer_to(registration, path))


def moved_or_replaced(path: Path, record: SessionRecord, registration: Path | None = None) -> RefusedError:
    """Return the error for another directory at the path of a session's worktree.

    Arguments:
        record: of the session.
        registration: the registration that the worktree had, if git has forgotten it.

    """
    again = command("ralph-wrap", "rm", record.id) if record.state == "finished" else "ralph-wrap sweep"
    to_move = f"{command('mv', path, free_place(path, '.moved'))} && {again}"
    if registration is not None and ownership.names_registration(path, registration):
        return RefusedError(
            f"its worktree was moved or replaced: git has forgotten {path}; nothing there is touched",
            f"to move it aside, where its files stay as they are: {to_move}",
        )
    return RefusedError(
        f"its worktree was moved or replaced: {ownership.describe(path)}; nothing there is touched",
        Commands.of(
            f"to move that aside: {to_move}",
            f"if the session's own worktree is elsewhere, then move it back to {path} before: {again}",
        ),
    )


def _names(registration: Path, path: Path) -> bool:
    with contextlib.suppress(OSError):
        return ownership.names_directory(registration, path)
    return False


def _names_at_any_mount(registration: Path, path: Path) -> bool:
    if _names(registration, path):
        return True
    with contextlib.suppress(OSError):
        return pointer.is_below_some_mount(files.read(registration / pointer.BACK), path, _TAIL)
    return False


def _is_half_dropped(registration: Path, path: Path, record: SessionRecord) -> bool:
    """Return whether git began to delete the registration of the session."""
    if registration.is_symlink() or not registration.is_dir():
        return False
    if not is_half_dropped(registration, marked=True):
        return False
    if ownership.read_mark(registration) is not None:
        return ownership.belongs_to(registration, record)
    # The rest of it must not name another owner or another directory.
    lock = ownership.lock_of(registration)
    foreign_lock = lock is not None and not ownership.is_locked_for(
        registration, session_lock(record.session)
    )
    foreign_path = (registration / pointer.BACK).exists() and not _names_at_any_mount(registration, path)
    return not foreign_lock and not foreign_path


def bring_back(common_dir: Path, worktrees: Path, trash: Path) -> None:
    """Move each worktree that a killed removal left in the trash back to its path, if it has a mark.

    Arguments:
        common_dir: the repository.
        worktrees: the directory with our worktrees.
        trash: the trash, to which a removal moves them.

    Raises:
        OSError: a file cannot be read or moved; no work is lost.

    """
    if not any((registration / LEAVING).is_file() for registration in marked(common_dir)):
        return
    with repository_lock(common_dir):
        for registration in marked(common_dir):
            try:
                if files.is_locked(registration / LEAVING):
                    continue  # the process that removes it is alive
                name = decode(files.read(registration / LEAVING))
            except OSError:
                continue
            path = directory_of(registration, worktrees)
            if not is_name(name):
                continue
            if leaving := _leaving(path, trash / name, registration):
                leaving.rename(path)
                # Only in this case: else the process that wrote it may be alive, before its first step.
                (registration / LEAVING).unlink()


def _leaving(path: Path, aside: Path, registration: Path) -> Path | None:
    """Return the directory of a worktree that a removal has moved; another directory does not count."""
    if os.path.lexists(path):
        return None
    for directory in leaving_places(path, aside):
        if directory.is_dir() and ownership.names_registration(directory, registration, path=path):
            return directory
    return None


def _require_gone(registration: Path) -> None:
    """Make sure that there is no registration at all: an unreadable one must not count as none."""
    with contextlib.suppress(OSError):
        registration.rmdir()  # empty: git was killed before its last step of deleting it file by file
    if os.path.lexists(registration):
        raise RefusedError(
            f"its worktree was moved or replaced: {registration} does not say that it is the session's",
            "git worktree list",
        )


def _is_hollow(registration: Path, path: Path) -> bool:
    """Return whether a directory does not exist, or holds only a ``.git`` file of ours."""
    return not os.path.lexists(path) or ownership.is_begun(path, pointers_to(registration, path))


def take_apart(
    registration: Path, path: Path, lock: str, branch: str | None, base: str | None = None
) -> None:
    """Remove a half-made worktree of a killed process, before it held any work.

    The caller holds the repository's lock, so no other process works on it.

    Arguments:
        registration: the registration. If it is another worktree's, nothing is removed.
        path: the worktree's directory. If it holds other files, it stays.
        lock: the beginning of the reason of our lock.
        branch: the branch that git would have checked out; ``None`` for a detached HEAD.
        base: the commit of the branch, at which HEAD may still be detached.

    Raises:
        OSError: a file cannot be removed.

    """
    if os.path.lexists(registration):
        if not ownership.is_unfinished(registration, lock, branch, base):
            return
        remove_unfinished(registration)
    if ownership.is_begun(path, pointers_to(registration, path)):
        for entry in path.iterdir():
            entry.unlink()
        path.rmdir()


def is_deleted(worktree: LinkedWorktree) -> bool:
    """Return whether the directory of a dead session's worktree was deleted.

    Nothing is at its path, and the registration still names that: git has not moved the worktree. Its
    ``.git`` file has lost the link that is not in the registration (see ``ownership.write_anchor``). If the
    user has moved the directory by ``mv``, or a disk is not mounted, both links still exist.
    """
    path, registration = worktree.path, worktree.registration
    try:
        return (
            not os.path.lexists(path)
            and ownership.is_unlinked(registration)
            and not path.parent.is_symlink()
            and _nearest(path.parent).stat().st_dev == registration.stat().st_dev
            and worktree.owner is not None
            and ownership.read_mark(registration) == worktree.owner.mark
            and ownership.names_directory(registration, path)
            and registration.parent == worktree.common_dir / "worktrees"
            and pointer.common_dir_of(registration) == worktree.common_dir
            and not is_replaced(registration)
            and not ownership.others_naming(registration, path)
        )
    except OSError:
        return False


def _nearest(directory: Path) -> Path:
    """Return the nearest directory that exists: ``rm -rf .ralph`` deletes some more."""
    while not directory.is_dir():
        directory = directory.parent
    return directory


def finish_deleted(worktree: LinkedWorktree, git: Git, record: SessionRecord) -> WorktreeOutcome:
    """Save what the registration of a deleted worktree holds, then remove the registration.

    If that is nothing, the last snapshot of the session is saved: what it has was not committed, either.
    """
    git = git._replace(cwd=worktree.common_dir, git_dir=worktree.common_dir)
    saved = None
    try:
        with scratch_in(worktree.registration) as scratch:
            request = SaveRequest(record.id, record.session)
            index = scratch / "index"
            saved = save_without_files(worktree, git, index, request)
            if saved.branch is None and (last := save_snapshot(worktree, git, scratch / "snapshot", request)):
                saved = saved._replace(branch=last.branch, paths=last.paths)
        if lacks := [*filter(None, [saved.damage]), *saved.problems]:
            return WorktreeOutcome(saved, f"it was deleted, but {'; '.join(lacks)}", later=bool(saved.damage))
        sync_repository(worktree.common_dir)
        with repository_lock(worktree.common_dir) as lock:
            assert worktree.owner is not None
            if reason := ownership.why_not_removable(worktree.registration, worktree.owner):
                return WorktreeOutcome(saved, reason, asked=True)
            now = named_objects(worktree.registration, worktree.git(git, worktree.common_dir), [])
            if not is_deleted(worktree) or now != saved.named:
                return WorktreeOutcome(saved, "something was changed in it while it was being removed")
            drop_registration(worktree, git._replace(lock=lock))
        with contextlib.suppress(OSError):  # the next sweep does it
            release(worktree.common_dir / "objects", record.session)
    except Exception as error:  # noqa: BLE001 -- after any error: without a full save there is no removal
        return WorktreeOutcome(saved, f"it cannot be {'removed' if saved else 'saved'}: {error}")
    return WorktreeOutcome(saved, None)
