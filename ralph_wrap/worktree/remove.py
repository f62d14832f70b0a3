"""Remove a worktree, and a branch without a new commit. No other code deletes work.

Why this order:

1. **Ownership** (see ``ownership``). The registration has its owner's mark. The worktree's ``.git`` file
   names the registration, and the registration names the directory and the repository. All of this is read
   anew each time. Another directory at its path fails this check, and so does a moved worktree: both stay.
2. **No process inside.** A process that works in it would write after the save. The deletion would also
   empty mount points inside.
3. **Save, read back, then name** (see ``save``), so that no ``git gc`` deletes any of it (``save.apart``).
   If an object is damaged, or the user has locked its registration, the worktree stays, saved.
4. **Check 1 and 2 again and rename it into our own trash.** This takes 5 ms, and can be undone until the
   registration is dropped. From then on no process finds it by its path. The last check follows: after a
   change since the save, with a new lock, or with a process inside, it goes back. After a change it is saved
   again, three times at most. Only the last check finds a file that was opened since check 2. A look at all
   open files takes long.
5. **Drop the registration**, under the repository's lock; git also deletes the worktree's index and reflog.
6. **Delete** the directory in the trash, in the background (see ``trash``).

After any error before 5 the worktree still works, and the outcome has the reason. No option skips 1 or 2.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import GitError, RefusedError
from ralph_wrap.git import Git, pointer, run_git_again
from ralph_wrap.git.quarantine import release
from ralph_wrap.system import files, process_table
from ralph_wrap.system.cancel import NEVER, CancelToken
from ralph_wrap.system.disk import full_directory
from ralph_wrap.worktree.create.replica import refresh
from ralph_wrap.worktree.git_file import own_repository
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.ownership import (
    MARK,
    describe,
    names_directory,
    names_registration,
    others_naming,
    read_mark,
    why_not_removable,
)
from ralph_wrap.worktree.save.index import index_digest, scratch_in
from ralph_wrap.worktree.save.inspect import has_submodules
from ralph_wrap.worktree.save.registration import is_replaced
from ralph_wrap.worktree.save.result import Losses, SavedWork, SaveRequest
from ralph_wrap.worktree.save.sync import has_left_nothing, sync_repository
from ralph_wrap.worktree.save.unused_branch import drop_branch_at
from ralph_wrap.worktree.save.walk import Unreadable
from ralph_wrap.worktree.save.whole import holds, losses, save
from ralph_wrap.worktree.trash import LEAVING_SUFFIX, discard_clone, discard_worktree

LEAVING = "ralph-wrap-leaving"
"""In a registration: the name that its worktree has in the trash while it is being removed."""

_ATTEMPTS = 3  # to save a worktree that changes while it is being removed
_CHANGED = "something was changed in it while it was being removed"

_DROPPED = "ralph-wrap-dropped"
"""In a registration with submodules: the last check was done, so an incomplete one may be deleted."""


class WorktreeOutcome(NamedTuple):
    """How a worktree ended.

    Attributes:
        saved: the saved work; ``None`` if nothing was saved, or the save failed.
        kept: the reason why the worktree still exists; ``None`` if it was removed.
        asked: it is kept because the user wants that, not because it could not be saved.
        later: the next start or sweep has to save or remove it: there was no time, or something is damaged.
        lost: what is lost with it, because somebody else had deleted it; ``None`` if nothing is.
        way_out: the command after which it can go; ``None``: ``ralph-wrap rm``.
        closed: it stays because it cannot be read or moved, perhaps only because of the modes of files.
        full: a directory on the full disk that stopped its save or removal; a sweep tries again.

    """

    saved: SavedWork | None
    kept: str | None
    asked: bool = False
    later: bool = False
    lost: str | None = None
    way_out: str | None = None
    closed: bool = False
    full: Path | None = None


def finish(
    worktree: LinkedWorktree,
    git: Git,
    request: SaveRequest,
    *,
    trash: Path,
    keep: str | None,
    keep_saved: str | None = None,
    cancel: CancelToken = NEVER,
    reuse: Callable[[Path, Collection[str]], None] = lambda _directory, _ignored: None,
) -> WorktreeOutcome:
    """Save the work in a worktree, then remove it.

    Arguments:
        worktree: made by ``worktree.create.transaction.create``.
        git: git in the repository.
        request: how its work is saved. With ``commits_only``, uncommitted work keeps it.
        trash: a directory on the worktree's file system.
        keep: the reason to keep it without a save; ``None`` to save it.
        keep_saved: the reason to keep it after the save; ``None`` to remove it.
        cancel: if no time is left after the save, the next start removes the worktree.
        reuse: called with the directory after the registration is dropped, and with the paths that git
            ignored in it. It may move these paths away before the deletion.

    """
    if keep is not None:
        return WorktreeOutcome(None, keep, asked=True)
    saved: SavedWork | None = None
    try:
        if reason := _not_removable(worktree, worktree.path):
            return WorktreeOutcome(None, reason)
        # Not in the project root: an agent may have deleted or replaced it, too.
        git = _at(worktree, git)
        attempts = 0
        while True:
            attempts += 1
            refresh(worktree, git)
            with scratch_in(worktree.registration) as scratch:
                index, before = scratch / "index", saved
                saved = save(worktree, git, index, request)
                if before is not None:
                    saved = saved._replace(snapshots=(*before.snapshots, *saved.snapshots))
                if saved.damage:
                    return WorktreeOutcome(saved, "; ".join([saved.damage, *saved.problems]), later=True)
                if saved.problems:
                    return WorktreeOutcome(
                        saved,
                        "; ".join(saved.problems),
                        asked=request.commits_only and not saved.clean,
                        closed=all(isinstance(problem, Unreadable) for problem in saved.problems),
                    )
                aside = trash / request.session
                outcome = _remove_saved(
                    worktree, git, index, aside, saved, keep=keep_saved, cancel=cancel, reuse=reuse
                )
            if outcome.kept != _CHANGED or attempts == _ATTEMPTS or cancel.out_of_time:
                return outcome
    except Exception as error:  # noqa: BLE001 -- after any error: without a full save there is no removal
        reason = f"it cannot be {'removed' if saved else 'saved'}: {error}"
        full = full_directory(error, worktree.path.parent, worktree.common_dir)
        return WorktreeOutcome(saved, reason, closed=full is None, full=full)


def _remove_saved(
    worktree: LinkedWorktree,
    git: Git,
    index: Path,
    aside: Path,
    saved: SavedWork,
    *,
    keep: str | None,
    cancel: CancelToken,
    reuse: Callable[[Path, Collection[str]], None],
) -> WorktreeOutcome:
    """Remove a worktree whose work is saved, unless there is a reason to keep it, or no time."""
    if not has_left_nothing(worktree, saved):
        sync_repository(worktree.common_dir)
    if reason := own_repository(worktree):
        return WorktreeOutcome(saved, reason)
    if reason := keep or _locked_by_user(worktree):
        return WorktreeOutcome(saved, reason, asked=True)
    if cancel.out_of_time:
        return WorktreeOutcome(saved, "there was no time to remove it; the next start does", later=True)
    reason = _remove(worktree, git, index, aside, saved, reuse=reuse)
    if reason is None:
        with contextlib.suppress(OSError):  # the next sweep does it
            release(worktree.common_dir / "objects", aside.name)
    return WorktreeOutcome(saved, reason)


def remove(
    worktree: LinkedWorktree,
    git: Git,
    trash: Path,
    name: str,
    *,
    check: Callable[[Losses], None],
    visitors: frozenset[int] = frozenset(),
) -> Losses:
    """Remove a worktree without saving anything; its branch stays.

    Arguments:
        git: git in the repository.
        trash: a directory on the worktree's file system.
        name: the name of the directory in the trash, in the form of a session id.
        check: raises an error if these losses are not acceptable. Else it makes sure that no process works in
            the worktree any more.
        visitors: pids of processes that may be in it, because they asked for the removal.

    Returns:
        The losses. If there are none, the last check has confirmed this.

    Raises:
        RefusedError: it is not ours, a process works in it, or it has changed meanwhile.
        RalphError: *check* or git failed.
        OSError: a file cannot be read or moved.

    """
    if reason := _not_ours(worktree, worktree.path):
        raise RefusedError(f"{worktree.path} stays: {reason}")
    git = _at(worktree, git)
    with scratch_in(worktree.registration) as scratch:
        staged = index_digest(worktree)
        found = losses(worktree, git, scratch / "index")
        check(found)
        sync_repository(worktree.common_dir)
        nothing = SavedWork(
            branch=None,
            paths=(),
            snapshots=(),
            ignored=found.ignored,
            ignored_files=found.ignored_files,
            problems=(),
            inner=found.inner,
            clones=found.clones,
            staged=staged,
        )
        # If we are killed while the directory is in the trash, ``bring_back`` finds it by this file.
        files.replace(worktree.registration / LEAVING, name.encode())
        lock = files.try_lock(worktree.registration / LEAVING)  # as long as we live, it stays where it is
        try:
            reason = _remove(
                worktree, git, scratch / "index", trash / name, nothing if found.none else None, visitors
            )
        finally:
            (worktree.registration / LEAVING).unlink(missing_ok=True)
            if lock is not None:
                lock.release()
        if reason:
            raise RefusedError(f"{worktree.path} stays: {reason}")
    return found


def drop_branch(worktree: LinkedWorktree, git: Git, outcome: WorktreeOutcome) -> bool:
    """Delete the branch of a removed worktree if it holds no work, and return whether it was deleted.

    It holds no work if ralph-wrap made it, it is still at its base, and nothing else was saved.

    Raises:
        GitError: another process has just moved it; it stays.
        OSError: the repository cannot be locked.

    """
    if not worktree.branch_created or outcome.kept or outcome.saved is None:
        return False
    if (
        outcome.saved.branch
        or outcome.saved.snapshots
        or any(submodule.refs for submodule in outcome.saved.inner)
    ):
        return False
    return drop_branch_at(git, worktree.common_dir, worktree.branch, worktree.base)


def _at(worktree: LinkedWorktree, git: Git) -> Git:
    # By name: where safe.bareRepository is "explicit", git does not find it from within (2.38 to 2.45).
    return git._replace(cwd=worktree.common_dir, git_dir=worktree.common_dir)


def _not_ours(worktree: LinkedWorktree, directory: Path) -> str | None:
    if directory.is_symlink() or not directory.is_dir():
        return (
            f"its worktree was moved or replaced: {describe(directory)}; what git knows of it is left alone"
        )
    if not _is_ours(worktree):
        return f"its worktree was moved or replaced: {describe(directory)}; it is left alone"
    return None


def _not_removable(
    worktree: LinkedWorktree,
    directory: Path,
    visitors: frozenset[int] = frozenset(),
    *,
    open_files: bool = True,
) -> str | None:
    if reason := _not_ours(worktree, directory) or _occupied(directory, visitors, open_files=open_files):
        return reason
    if mounts := files.mounts_in(directory):
        return f"something is mounted in it: {mounts[0]}"
    return None


def _occupied(directory: Path, visitors: frozenset[int], *, open_files: bool = True) -> str | None:
    found = process_table.occupants(directory, open_files=open_files)
    names = [f"{name} ({pid})" for pid, name in found if pid not in visitors]
    return "processes work in it: " + ", ".join(names) if names else None


def _is_ours(worktree: LinkedWorktree) -> bool:
    registration = worktree.registration
    try:
        # Git writes refs to the directory that this file names, even if GIT_COMMON_DIR names another one.
        # Without the file git writes refs into the registration, and they would be deleted with it.
        common_dir = pointer.common_dir_of(registration)
        named = names_directory(registration, worktree.path)
    except OSError:
        return False
    return (
        named
        and worktree.owner is not None
        and read_mark(registration) == worktree.owner.mark
        and (names_registration(worktree.path, registration) or own_repository(worktree) is not None)
        and registration.parent == worktree.common_dir / "worktrees"
        and common_dir == worktree.common_dir
        and not is_replaced(registration)
    )


def _locked_by_user(worktree: LinkedWorktree) -> str | None:
    assert worktree.owner is not None
    return why_not_removable(worktree.registration, worktree.owner)


def leaving_places(path: Path, aside: Path) -> tuple[Path, Path]:
    """Return the paths of a worktree in the trash whose removal can still be undone."""
    return aside.with_name(f"{aside.name}{LEAVING_SUFFIX}"), path.with_name(f"{aside.name}{LEAVING_SUFFIX}")


def _remove(
    worktree: LinkedWorktree,
    git: Git,
    index: Path,
    aside: Path,
    saved: SavedWork | None,
    visitors: frozenset[int] = frozenset(),
    reuse: Callable[[Path, Collection[str]], None] = lambda _directory, _ignored: None,
) -> str | None:
    """Remove a worktree that holds no more than the saved work; without saved work, any worktree.

    The look at the files comes between two times with the repository's lock: when many sessions end at once,
    none waits for the look of another one.
    """
    with repository_lock(worktree.common_dir):
        reason = _not_removable(worktree, worktree.path, visitors, open_files=False)
        if reason := reason or _locked_by_user(worktree):
            return reason
        if others := others_naming(worktree.registration, worktree.path):
            return f"its worktree was moved or replaced: {others[0].name} is registered in its place too"
        (worktree.registration / _DROPPED).unlink(missing_ok=True)
        leaving = _move(worktree.path, *leaving_places(worktree.path, aside))
    try:
        if not names_registration(leaving, worktree.registration, path=worktree.path):
            leaving.rename(worktree.path)  # another directory came here after the check above
            return f"its worktree was moved or replaced: {describe(worktree.path)}; it is left alone"
        # No process finds it by its path any more, so this is its last state.
        refresh(worktree._replace(path=leaving), git)
        changed = saved is not None and not holds(worktree, git, index, leaving, saved)
        with repository_lock(worktree.common_dir) as lock:
            if not names_registration(leaving, worktree.registration, path=worktree.path):
                return "another process has moved it back while it was being removed"
            reason = _locked_by_user(worktree) or _occupied(leaving, visitors)
            if changed or reason:
                leaving.rename(worktree.path)
                return reason or _CHANGED
            # If we are killed here, no process moves the directory back, so this git cannot delete it.
            drop_registration(worktree, git._replace(lock=lock))
    except BaseException as error:
        if not os.path.lexists(worktree.path):
            leaving.rename(worktree.path)
            raise
        if leaving.is_dir():
            raise RefusedError(f"it is in {leaving} now: something else is in its place") from error
        raise
    with contextlib.suppress(OSError):
        reuse(leaving, saved.own_ignored if saved else ())
    if worktree.clone and worktree.owner and worktree.owner.mark:
        discard_clone(leaving, aside, worktree.owner.mark)
    else:
        discard_worktree(leaving, aside, worktree.registration, worktree.path)
    return None


def drop_registration(worktree: LinkedWorktree, git: Git) -> None:
    """Unregister a worktree; if git is killed during this, delete the rest of the registration.

    Raises:
        GitError: it is still registered.

    """
    if worktree.clone:  # at once: a registration that is half gone would look like damage
        worktree.registration.rename(worktree.common_dir / f"dropped-{os.urandom(4).hex()}")
        return
    if has_submodules(worktree):
        # If git is killed while it deletes them, no later check can see what they held.
        files.replace(worktree.registration / _DROPPED, b"", sync=False)
    try:
        run_git_again(git, "worktree", "remove", "--force", "--force", worktree.path)
    except GitError:
        marked = worktree.owner is not None and worktree.owner.mark is not None
        if not is_half_dropped(worktree.registration, marked=marked):
            raise
        files.remove_tree(worktree.registration)


def is_half_dropped(registration: Path, *, marked: bool) -> bool:
    """Return whether git began to delete a registration (file by file), or has deleted all of it.

    Arguments:
        marked: it had the mark of a session.

    """
    names = ("HEAD", "commondir", pointer.BACK, "index", *((MARK,) if marked else ()))
    whole = all((registration / name).exists() for name in names)
    return not whole or (registration / _DROPPED).exists()


def _move(path: Path, aside: Path, beside: Path) -> Path:
    """Rename a worktree into the trash; if the trash is on another file system, next to itself."""
    if not (aside.parent.is_symlink() or aside.parent.parent.is_symlink()):
        try:
            aside.parent.mkdir(exist_ok=True)
            return path.rename(aside)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
    return path.rename(beside)
