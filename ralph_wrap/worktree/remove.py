"""Remove a worktree, and a branch that nothing came of: the only code that makes work disappear.

Why this order:

1. **Ownership.** The worktree's ``.git`` names the registration, and the registration names the directory
   back. Read anew each time. A directory that somebody put in its place, or a worktree that was moved
   away, fails this and stays.
2. **Nothing running inside.** A process that works in it would write after the save. Mount points inside
   would be emptied with it.
3. **Save and verify** (see ``save``).
4. **Look at 1 and 2 once more and rename aside**, into our own trash: one step, 5 ms, and until the
   registration is dropped it can be renamed back.
5. **Drop the registration**, under the repository's lock: with it go the worktree's index and reflog.
6. **Delete** what is in the trash, in the background; nobody waits for it.

Whatever fails before 5 leaves a worktree that works; it is then kept, and the reason is told. No option
skips 1 or 2.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap import files, git, process
from ralph_wrap.errors import GitError
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.save import Saved, save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralph_wrap.git import Git
    from ralph_wrap.worktree.create import LinkedWorktree


_LEAVING = ".leaving"
"""What ends so in the trash may still come back: its registration is not dropped yet."""


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
    keep: bool,
    keep_dirty: bool,
) -> Outcome:
    """Save what a worktree holds, then remove it.

    Arguments:
        worktree: made by :func:`create`.
        where: git at the project root.
        agent_id: names the branch of the saved work.
        session: names the directory in the trash.
        trash: directory on the worktree's file system.
        keep: leave it in place, as it is.
        keep_dirty: leave it in place if it holds uncommitted work, instead of saving that.

    """
    if keep:
        return Outcome(None, "it was asked for")
    if reason := _not_removable(worktree):
        return Outcome(None, reason)
    try:
        saved = save(worktree, where, agent_id=agent_id, session=session, dry_run=keep_dirty)
    except (GitError, OSError) as error:
        return Outcome(None, f"its work cannot be saved: {error}")
    if saved.problems:
        return Outcome(saved, "; ".join(saved.problems))
    return Outcome(saved, _remove(worktree, where, trash / session))


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
    """Start deleting what is in the trash, in the background.

    Raises:
        OSError: the trash cannot be read, or there is no ``rm``.

    """
    if leftovers := sorted(path for path in trash.iterdir() if path.suffix != _LEAVING):
        _delete(leftovers)


def _not_removable(worktree: LinkedWorktree) -> str | None:
    if not worktree.path.is_dir() or worktree.path.is_symlink():
        return "it is not where it was made"
    if not _is_ours(worktree):
        return "its .git file and its registration do not name each other any more"
    if inside := process.working_inside(worktree.path):
        return "processes work in it: " + ", ".join(f"{name} ({pid})" for pid, name in inside)
    if mounts := process.mounted_inside(worktree.path):
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


def _remove(worktree: LinkedWorktree, where: Git, aside: Path) -> str | None:
    try:
        with repository_lock(worktree.common_dir):
            if reason := _not_removable(worktree):
                return reason
            leaving = _move(worktree.path, aside.with_name(f"{aside.name}{_LEAVING}"))
            try:
                git.run(where, "worktree", "remove", "--force", "--force", worktree.path)
            except GitError:
                leaving.rename(worktree.path)
                raise
        if leaving.parent == aside.parent:
            leaving.rename(aside)
        else:
            _delete([leaving])
    except (GitError, OSError) as error:
        return f"it cannot be removed: {error}"
    return None


def _move(path: Path, aside: Path) -> Path:
    """Rename a worktree into the trash, or beside itself if that is on another file system."""
    try:
        aside.parent.mkdir(exist_ok=True)
        return path.rename(aside)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return path.rename(path.with_name(aside.name))


def _delete(paths: Sequence[Path]) -> None:
    process.detach(("rm", "-rf", "--", *paths), cwd=paths[0].parent, env=os.environ)
