"""Remove a worktree, and a branch that nothing came of: the only code that makes work disappear.

Why this order:

1. **Ownership.** The worktree's ``.git`` names the registration, and the registration names the directory
   back. Read anew each time. A directory that somebody put in its place, or a worktree that was moved
   away, fails this and stays.
2. **Nothing running inside.** A process that works in it would write after the save. Mount points inside
   would be emptied with it.
3. **Save and verify** (see ``save``).
4. **Look at 1 and 2 once more and rename aside**, into our own trash: one step, 5 ms, and until the
   registration is dropped it can be renamed back. Then nobody finds it by its name any more, and it is
   looked at for the last time: what was written after the save brings it back.
5. **Drop the registration**, under the repository's lock: with it go the worktree's index and reflog.
6. **Delete** what is in the trash, in the background; nobody waits for it.

Whatever fails before 5 leaves a worktree that works; it is then kept, and the reason is told. No option
skips 1 or 2.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap import files, git, occupancy, process
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.save import Saved, holds, save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralph_wrap.git import Git
    from ralph_wrap.worktree.create import LinkedWorktree


_LEAVING = ".leaving"
"""What ends so in the trash may still come back: its registration is not dropped yet."""

_IN_TRASH = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a worktree ended.

    Attributes:
        saved: what was saved, ``None`` if that was not tried or could not be told.
        kept: why the worktree is still there, ``None`` if it is gone.

    """

    saved: Saved | None
    kept: str | None


def finish(
    worktree: LinkedWorktree,
    where: Git,
    *,
    agent_id: str,
    session: str,
    trash: Path,
    keep: str | None,
    keep_dirty: bool,
) -> Outcome:
    """Save what a worktree holds, then remove it.

    Arguments:
        worktree: made by :func:`create`.
        where: git in the repository.
        agent_id: names the branch of the saved work.
        session: names the directory in the trash.
        trash: directory on the worktree's file system.
        keep: why it is to be left in place, as it is; ``None`` if it is not.
        keep_dirty: leave it in place if it holds uncommitted work, instead of saving that.

    """
    if keep is not None:
        return Outcome(None, keep)
    saved = None
    try:
        if reason := _not_removable(worktree, worktree.path):
            return Outcome(None, reason)
        # Not the project root: an agent may have deleted or replaced that, too.
        where = dataclasses.replace(where, cwd=worktree.common_dir)
        with tempfile.TemporaryDirectory(
            prefix="ralph-wrap-", dir=worktree.registration, ignore_cleanup_errors=True
        ) as scratch:
            index = Path(scratch, "index")
            saved = save(worktree, where, index, agent_id=agent_id, session=session, commits_only=keep_dirty)
            if saved.problems:
                return Outcome(saved, "; ".join(saved.problems))
            return Outcome(saved, _remove(worktree, where, index, trash / session))
    except Exception as error:  # noqa: BLE001 -- whatever it is: without a full save there is no removal
        return Outcome(saved, f"it cannot be {'removed' if saved else 'saved'}: {error}")


def drop_branch(worktree: LinkedWorktree, where: Git, outcome: Outcome) -> bool:
    """Delete the branch of a worktree that is gone if nothing came of it, and tell whether that was so.

    It goes if we made it, it is where it began, and nothing else was saved.

    Raises:
        GitError: it has moved in this very moment; it stays.
        OSError: the repository cannot be locked.

    """
    if not worktree.branch_created or outcome.kept or outcome.saved is None:
        return False
    if outcome.saved.branch or outcome.saved.snapshots:
        return False
    ref = f"refs/heads/{worktree.branch}"
    with repository_lock(worktree.common_dir):
        if git.refs(where, ref).get(ref) != worktree.base:
            return False
        git.delete_ref(where, ref, worktree.base)
    return True


def empty_trash(trash: Path) -> None:
    """Start deleting what is in the trash, in the background; only what bears the name of a session.

    Raises:
        OSError: the trash cannot be read, or is a symlink.

    """
    if trash.is_symlink():
        raise OSError(errno.ELOOP, "the trash is a symlink", str(trash))
    if leftovers := sorted(path for path in trash.iterdir() if _IN_TRASH.fullmatch(path.name)):
        _delete(leftovers)


def _not_removable(worktree: LinkedWorktree, place: Path) -> str | None:
    if place.is_symlink() or not place.is_dir():
        return "it was moved or deleted; its registration is left alone"
    if not _is_ours(worktree):
        return "its .git file and its registration do not name each other any more"
    if inside := occupancy.occupants(place):
        return "processes work in it: " + ", ".join(f"{name} ({pid})" for pid, name in inside)
    if mounts := occupancy.mounts_in(place):
        return f"something is mounted in it: {mounts[0]}"
    return None


def _is_ours(worktree: LinkedWorktree) -> bool:
    registration = worktree.registration
    try:
        pointer = git.text(files.read(worktree.path / ".git")).removeprefix("gitdir: ").rstrip("\n")
        back = Path(git.text(files.read(registration / "gitdir")).removesuffix("\n"))
    except OSError:
        return False
    return (
        (worktree.path / pointer).resolve() == registration
        and registration.parent == worktree.common_dir / "worktrees"
        and back.resolve() == worktree.path / ".git"
    )


def _remove(worktree: LinkedWorktree, where: Git, index: Path, aside: Path) -> str | None:
    with repository_lock(worktree.common_dir):
        if reason := _not_removable(worktree, worktree.path):
            return reason
        leaving = _move(worktree.path, aside.with_name(f"{aside.name}{_LEAVING}"))
        try:
            # Nobody finds it by its name any more, so what is looked at now is the last state there is.
            if occupancy.occupants(leaving) or not holds(worktree, where, index, leaving):
                leaving.rename(worktree.path)
                return "something was changed in it while it was being removed"
            git.run_again(where, "worktree", "remove", "--force", "--force", worktree.path)
        except BaseException:
            if not worktree.path.exists():
                leaving.rename(worktree.path)
            raise
    if leaving.parent == aside.parent:
        leaving.rename(aside)
    else:
        _delete([leaving])
    return None


def _move(path: Path, aside: Path) -> Path:
    """Rename a worktree into the trash, or beside itself if that is on another file system."""
    if not aside.parent.is_symlink():
        try:
            aside.parent.mkdir(exist_ok=True)
            return path.rename(aside)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
    return path.rename(path.with_name(aside.name))


def _delete(paths: Sequence[Path]) -> None:
    # A directory without write permission (Go's module cache) keeps its files from being deleted.
    script = 'chmod -R u+rwx -- "$@"; rm -rf -- "$@"'
    process.detach(("sh", "-c", script, "sh", *paths), cwd=paths[0].parent, env=os.environ)
