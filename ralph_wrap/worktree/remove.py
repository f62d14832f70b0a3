"""Remove a worktree, and a branch that nothing came of: the only code that makes work disappear.

Why this order:

1. **Ownership** (see ``ownership``). The registration bears its owner's mark. The worktree's ``.git`` names
   the registration, and the registration names the directory and the repository. Read anew each time. A
   directory that a user put in its place, or a worktree that was moved away, fails this and stays.
2. **Nothing running inside.** A process that works in it would write after the save. Mount points inside
   would be emptied with it.
3. **Save and verify** (see ``save``). A worktree whose user has locked its registration stays, saved.
4. **Look at 1 and 2 once more and rename aside**, into our own trash: one step, 5 ms, and until the
   registration is dropped it can be renamed back. Then nobody finds it by its name any more, and it is
   looked at for the last time: what was written after the save, or a new lock, brings it back.
5. **Drop the registration**, under the repository's lock: with it go the worktree's index and reflog.
6. **Delete** what is in the trash, in the background (see ``trash``); nobody waits for it.

Whatever fails before 5 leaves a worktree that works; it is then kept, and the reason is told. No option
skips 1 or 2.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap.errors import GitError, RefusedError
from ralph_wrap.git import delete_ref, list_refs, pointer, run_git_again, worktree_holding
from ralph_wrap.system import directory_users, files
from ralph_wrap.system.cancel import NEVER
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.ownership import (
    MARK,
    describe,
    names_directory,
    names_registration,
    others_naming,
    read_mark,
)
from ralph_wrap.worktree.ownership import why_not_removable as locked_by_user
from ralph_wrap.worktree.save.inspect import has_submodules
from ralph_wrap.worktree.save.registration import is_replaced
from ralph_wrap.worktree.save.result import Losses, SavedWork
from ralph_wrap.worktree.save.scratch import scratch_in
from ralph_wrap.worktree.save.whole import holds, losses, save
from ralph_wrap.worktree.trash import LEAVING_SUFFIX, discard_worktree

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ralph_wrap.git import Git
    from ralph_wrap.system.cancel import CancelToken
    from ralph_wrap.worktree.model import LinkedWorktree


LEAVING = "ralph-wrap-leaving"
"""In a registration: the name that its worktree has in the trash while it is being removed."""

_DROPPED = "ralph-wrap-dropped"
"""In a registration with submodules: the last look was taken, and the rest may go, whatever is left of it."""


class WorktreeOutcome(NamedTuple):
    """How a worktree ended.

    Attributes:
        saved: what was saved, ``None`` if that was not tried or could not be told.
        kept: why the worktree is still there, ``None`` if it is gone.
        asked: it is kept because somebody wanted that, not because it could not be saved.
        later: it was saved and may go, but there was no time for that.

    """

    saved: SavedWork | None
    kept: str | None
    asked: bool = False
    later: bool = False


def finish(
    worktree: LinkedWorktree,
    git: Git,
    *,
    agent_id: str,
    session: str,
    trash: Path,
    keep: str | None,
    keep_dirty: bool,
    keep_saved: str | None = None,
    unstarted: bool = False,
    cancel: CancelToken = NEVER,
    reuse: Callable[[Path, Collection[str]], None] = lambda _directory, _ignored: None,
) -> WorktreeOutcome:
    """Save what a worktree holds, then remove it.

    Arguments:
        worktree: made by :func:`create`.
        git: git in the repository.
        agent_id: names the branch of the saved work.
        session: names the directory in the trash.
        trash: directory on the worktree's file system.
        keep: why it is to be left in place, as it is; ``None`` if it is not.
        keep_dirty: leave it in place if it holds uncommitted work, instead of saving that.
        keep_saved: why it is to be left in place once it is saved; ``None`` if it is not.
        unstarted: no agent has worked in it: files that are missing were never checked out.
        cancel: looked at after the save; without time, the removal is left to the next start.
        reuse: given the directory once it is no worktree any more, and what git ignored in it; may move that
            away before it is deleted.

    """
    if keep is not None:
        return WorktreeOutcome(None, keep, asked=True)
    saved = None
    try:
        if reason := _not_removable(worktree, worktree.path):
            return WorktreeOutcome(None, reason)
        # Not the project root: an agent may have deleted or replaced that, too.
        git = _at(worktree, git)
        with scratch_in(worktree.registration) as scratch:
            index = scratch / "index"
            saved = save(
                worktree,
                git,
                index,
                agent_id=agent_id,
                session=session,
                commits_only=keep_dirty,
                unstarted=unstarted,
            )
            if saved.problems:
                return WorktreeOutcome(saved, "; ".join(saved.problems), asked=keep_dirty and not saved.clean)
            _sync(worktree.common_dir)
            keep_saved = keep_saved or worktree.stays or _locked_by_user(worktree)
            if keep_saved is None and not cancel.out_of_time:
                removing = _remove(worktree, git, index, trash / session, saved, reuse=reuse)
                return WorktreeOutcome(saved, removing)
            reason = keep_saved or "there was no time to remove it; the next start does"
            return WorktreeOutcome(saved, reason, asked=keep_saved is not None, later=keep_saved is None)
    except Exception as error:  # noqa: BLE001 -- whatever it is: without a full save there is no removal
        return WorktreeOutcome(saved, f"it cannot be {'removed' if saved else 'saved'}: {error}")


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
        worktree: which one.
        git: git in the repository.
        trash: directory on the worktree's file system.
        name: of the directory in the trash, formed like the id of a session.
        check: raises an error if the worktree is not to go with all that would be lost; else it sees to it
            that nobody works in the worktree any more.
        visitors: pids of processes that may be in it all the same, because they asked for this.

    Returns:
        What was lost; only if that is nothing, it was made sure of at the last moment.

    Raises:
        RefusedError: it is not the one that was made, somebody works in it, or it was changed by now.
        RalphError: what *check* raises, or git.
        OSError: something of it cannot be read or moved.

    """
    if reason := _not_ours(worktree, worktree.path):
        raise RefusedError(f"{worktree.path} stays: {reason}")
    git = _at(worktree, git)
    with scratch_in(worktree.registration) as scratch:
        found = losses(worktree, git, scratch / "index")
        check(found)
        _sync(worktree.common_dir)
        nothing = SavedWork(None, (), (), found.ignored, found.ignored_files, (), (), found.inner)
        # Should we be killed with the directory in the trash, ``bring_back`` finds it by this.
        files.replace(worktree.registration / LEAVING, name.encode())
        try:
            reason = _remove(
                worktree, git, scratch / "index", trash / name, nothing if found.none else None, visitors
            )
        finally:
            (worktree.registration / LEAVING).unlink(missing_ok=True)
        if reason:
            raise RefusedError(f"{worktree.path} stays: {reason}")
    return found


def drop_branch(worktree: LinkedWorktree, git: Git, outcome: WorktreeOutcome) -> bool:
    """Delete the branch of a worktree that is gone if nothing came of it, and tell whether that was so.

    It goes if we made it, it is where it began, and nothing else was saved.

    Raises:
        GitError: it has moved in this very moment; it stays.
        OSError: the repository cannot be locked.

    """
    if not worktree.branch_created or outcome.kept or outcome.saved is None:
        return False
    if outcome.saved.branch or outcome.saved.snapshots or any(one.refs for one in outcome.saved.inner):
        return False
    return drop_branch_at(git, worktree.common_dir, worktree.branch, worktree.base)


def drop_branch_at(git: Git, common_dir: Path, branch: str, base: str) -> bool:
    """Delete a branch that is still where it began, and tell whether that was so.

    Raises:
        GitError: it has moved in this very moment; it stays.
        OSError: the repository cannot be locked.

    """
    ref = f"refs/heads/{branch}"
    with repository_lock(common_dir):
        if list_refs(git, ref).get(ref) != base or worktree_holding(git, ref):
            return False
        delete_ref(git, ref, base)
    return True


def _at(worktree: LinkedWorktree, git: Git) -> Git:
    # By name: where safe.bareRepository is "explicit", git does not find it from within (2.38 to 2.45).
    return git._replace(cwd=worktree.common_dir, git_dir=worktree.common_dir)


def _sync(common_dir: Path) -> None:
    """Have on the disk what the agent has committed without syncing it: its files are about to go."""
    places = (common_dir, common_dir / "objects")
    for place in {place.stat().st_dev: place for place in places}.values():
        files.sync_file_system(place)


def _not_ours(worktree: LinkedWorktree, directory: Path) -> str | None:
    if directory.is_symlink() or not directory.is_dir():
        return (
            f"its worktree was moved or replaced: {describe(directory)}; what git knows of it is left alone"
        )
    if not _is_ours(worktree):
        return f"its worktree was moved or replaced: {describe(directory)}; it is left alone"
    return None


def _not_removable(
    worktree: LinkedWorktree, directory: Path, visitors: frozenset[int] = frozenset()
) -> str | None:
    if reason := _not_ours(worktree, directory):
        return reason
    if inside := _occupants(directory, visitors):
        return "processes work in it: " + ", ".join(f"{name} ({pid})" for pid, name in inside)
    if mounts := directory_users.mounts_in(directory):
        return f"something is mounted in it: {mounts[0]}"
    return None


def _occupants(directory: Path, visitors: frozenset[int]) -> list[tuple[int, str]]:
    return [(pid, name) for pid, name in directory_users.occupants(directory) if pid not in visitors]


def _is_ours(worktree: LinkedWorktree) -> bool:
    registration = worktree.registration
    try:
        # Refs are written where this file leads, whatever GIT_COMMON_DIR says. Without it they are written
        # into the registration: what is saved there goes with it.
        common_dir = pointer.common_dir_of(registration)
        named = names_directory(registration, worktree.path)
    except OSError:
        return False
    return (
        named
        and worktree.owner is not None
        and read_mark(registration) == worktree.owner.mark
        and names_registration(worktree.path, registration)
        and registration.parent == worktree.common_dir / "worktrees"
        and common_dir == worktree.common_dir
        and not is_replaced(registration)
    )


def _locked_by_user(worktree: LinkedWorktree) -> str | None:
    assert worktree.owner is not None
    return locked_by_user(worktree.registration, worktree.owner)


def leaving_places(path: Path, aside: Path) -> tuple[Path, Path]:
    """Return where a worktree may be that is on its way out but may still come back."""
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
    """Remove a worktree that holds no more than what was saved, or, without that, whatever it holds."""
    with repository_lock(worktree.common_dir) as lock:
        if reason := _not_removable(worktree, worktree.path, visitors) or _locked_by_user(worktree):
            return reason
        if others := others_naming(worktree.registration, worktree.path):
            return f"its worktree was moved or replaced: {others[0].name} is registered in its place too"
        (worktree.registration / _DROPPED).unlink(missing_ok=True)
        leaving = _move(worktree.path, *leaving_places(worktree.path, aside))
        if not names_registration(leaving, worktree.registration, path=worktree.path):
            leaving.rename(worktree.path)  # it took the worktree's place after the look above
            return f"its worktree was moved or replaced: {describe(worktree.path)}; it is left alone"
        try:
            # Nobody finds it by its name any more, so what is looked at now is the last state there is.
            changed = saved is not None and not holds(worktree, git, index, leaving, saved)
            locked = _locked_by_user(worktree)
            if changed or locked or _occupants(leaving, visitors):
                leaving.rename(worktree.path)
                return locked or "something was changed in it while it was being removed"
            # Should we be killed here, nobody brings the directory back for that git to delete it.
            _drop_registration(worktree, git._replace(lock=lock))
        except BaseException as error:
            if not os.path.lexists(worktree.path):
                leaving.rename(worktree.path)
                raise
            if leaving.is_dir():
                raise RefusedError(f"it is in {leaving} now: something else is in its place") from error
            raise
    with contextlib.suppress(OSError):
        reuse(leaving, saved.own_ignored if saved else ())
    discard_worktree(leaving, aside, worktree.registration, worktree.path)
    return None


def _drop_registration(worktree: LinkedWorktree, git: Git) -> None:
    """Have git forget a worktree, and finish that if git is killed at it.

    Raises:
        GitError: it is registered as before.

    """
    if has_submodules(worktree):
        # Should git be killed among them, what they held before the last look cannot be told any more.
        files.replace(worktree.registration / _DROPPED, b"", sync=False)
    try:
        run_git_again(git, "worktree", "remove", "--force", "--force", worktree.path)
    except GitError:
        marked = worktree.owner is not None and worktree.owner.mark is not None
        if not is_half_dropped(worktree.registration, marked=marked):
            raise
        shutil.rmtree(worktree.registration, ignore_errors=True)


def is_half_dropped(registration: Path, *, marked: bool) -> bool:
    """Tell whether git has begun to delete a registration, which it does file by file, or is done with it.

    Arguments:
        registration: which one.
        marked: it had the mark of a session.

    """
    names = ("HEAD", "commondir", pointer.BACK, "index", *((MARK,) if marked else ()))
    whole = all((registration / name).exists() for name in names)
    return not whole or (registration / _DROPPED).exists()


def _move(path: Path, aside: Path, beside: Path) -> Path:
    """Rename a worktree into the trash, or beside itself if that is on another file system."""
    if not aside.parent.is_symlink():
        try:
            aside.parent.mkdir(exist_ok=True)
            return path.rename(aside)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
    return path.rename(beside)
