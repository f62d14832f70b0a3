"""Keep what an iteration has left uncommitted: as a hidden ref, or as a commit on the branch.

Whoever is killed later has then lost no more than the iteration that ran, even where the worktree's directory
is gone with the disk or the container that it was on. Nothing of the worktree itself changes by a snapshot.
"""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING

from ralph_wrap.git import (
    commit_index,
    create_ref,
    current_branch,
    finish_git,
    is_staged,
    list_refs,
    move_ref,
    parse_status,
    resolve_commit,
    run_git,
    stage_all,
    start_status,
)
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.worktree.save.inspect import look
from ralph_wrap.worktree.save.registration import is_replaced, operation
from ralph_wrap.worktree.save.scratch import scratch_in
from ralph_wrap.worktree.save.trees import take_picture

if TYPE_CHECKING:
    from ralph_wrap.git import Git, Status
    from ralph_wrap.worktree.model import LinkedWorktree


class Snapshot(NamedTuple):
    """What a worktree held at the end of an iteration.

    Attributes:
        head: the commit at HEAD.
        ref: ``refs/ralph/snapshots/<id>/<n>``, whose commit on top of *head* holds what was uncommitted;
            ``None`` if nothing was.
        problems: what could not be kept, one line each: what is in other repositories is not.

    """

    head: str | None
    ref: str | None
    problems: tuple[str, ...] = ()


def snapshot(worktree: LinkedWorktree, git: Git, *, agent_id: str, session: str, number: int) -> Snapshot:
    """Keep what is uncommitted.

    Arguments:
        worktree: of the session.
        git: git at the repository.
        agent_id: names the ref.
        session: named in the commit's message.
        number: of the iteration; an earlier snapshot of the same one is replaced.

    Raises:
        GitError: that fails.
        OSError: the same.

    """
    here = _git(worktree, git)
    problems: list[str] = []
    head = resolve_commit(here, "HEAD")
    with scratch_in(worktree.registration) as directory:
        scratch = here._replace(index_file=directory / "index")
        status, walked = look(worktree, here, scratch, problems, ())
        if walked.repositories:
            problems += _in_repositories(here, status)
        if status.clean:
            return Snapshot(head, None, tuple(problems))
        picture = take_picture(worktree, scratch, head, status, problems)
        if picture.shows_head:
            return Snapshot(head, None, tuple(problems))
        message = f"ralph: after iteration {number} of session {session}\n"
        commit = picture.commit(scratch, message, session)
    ref = f"refs/ralph/snapshots/{agent_id}/{number}"
    if before := list_refs(here, ref).get(ref):
        move_ref(here, ref, before, commit, message, itself=True)
    else:
        create_ref(here, ref, commit, message)
    return Snapshot(head, ref, tuple(problems))


def sees_all(worktree: LinkedWorktree, git: Git, head: str) -> bool:
    """Tell whether a worktree without an uncommitted file at a commit, as git says, is all there is.

    Not if git was told to take files for unchanged, or the agent has put another repository in its place.

    Arguments:
        worktree: of the session.
        git: git at the repository.
        head: that commit.

    Raises:
        GitError: it cannot be told.
        OSError: the same.

    """
    here = _git(worktree, git)
    hidden = re.compile(rb"(?:\A|\0)[a-zS] ")  # see lift_flags
    return resolve_commit(here, "HEAD") == head and not hidden.search(
        run_git(here, "ls-files", "-v", "-z").stdout
    )


def commit_all(worktree: LinkedWorktree, git: Git, message: str) -> bool:
    """Commit what is uncommitted to the session's branch.

    Arguments:
        worktree: of the session.
        git: git at the repository.
        message: of the commit.

    Returns:
        Whether there is a commit now. None is made if git has nothing to commit or is in the middle of
        something, or if HEAD is on another branch, which is somebody's, or on none.

    Raises:
        GitError: that fails; part of it may be staged.
        OSError: the same.

    """
    here = _git(worktree, git)
    with start_status(here, "dirty") as asking:
        branch = current_branch(here)
        status = parse_status(finish_git(asking, "status").stdout)
    if branch != f"refs/heads/{worktree.branch}" or status.unmerged or operation(worktree):
        return False
    if status.changed or len(status.nested) < len(status.untracked):
        if failure := stage_all(here, exclude=status.nested):
            raise failure
        if is_staged(here):  # not if what has changed are line endings, say
            commit_index(here, message)
            return True
    return False


def _git(worktree: LinkedWorktree, git: Git) -> Git:
    if worktree.path.is_symlink():  # to the project, say, whose files are the user's own
        raise OSError(errno.ELOOP, "a symlink is in the worktree's place", str(worktree.path))
    if is_replaced(worktree.registration):
        raise OSError(errno.EINVAL, "HEAD or index is no file any more", str(worktree.registration))
    return worktree.git(git)


def _in_repositories(git: Git, status: Status) -> list[str]:
    """Return the repositories in a worktree that hold what a snapshot does not."""
    with start_status(git) as asking:
        inside = parse_status(finish_git(asking, "status").stdout)
    dirty = sorted({*inside.changed} - {*status.changed})
    return [
        *(f"nested repository {path}" for path in status.nested),
        *(f"submodule {path}: what is uncommitted in it" for path in dirty),
    ]
