"""Keep what an iteration has left uncommitted: as a hidden ref, or as a commit on the branch.

Whoever is killed later has then lost no more than the iteration that ran, even where the worktree's directory
is gone with the disk or the container that it was on. Nothing of the worktree itself changes by a snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import git
from ralph_wrap.worktree.bookkeeping import operation
from ralph_wrap.worktree.picture import take_picture
from ralph_wrap.worktree.save import look
from ralph_wrap.worktree.scratch import scratch_in

if TYPE_CHECKING:
    from ralph_wrap.git import Git
    from ralph_wrap.worktree.create import LinkedWorktree


class Snapshot(NamedTuple):
    """What a worktree held at the end of an iteration.

    Attributes:
        head: the commit at HEAD.
        ref: ``refs/ralph/snapshots/<id>/<n>``, whose commit on top of *head* holds what was uncommitted;
            ``None`` if nothing was.
        problems: what could not be kept, one line each.

    """

    head: str | None
    ref: str | None
    problems: tuple[str, ...] = ()


def snapshot(worktree: LinkedWorktree, where: Git, *, agent_id: str, session: str, number: int) -> Snapshot:
    """Keep what is uncommitted.

    Arguments:
        worktree: of the session.
        where: git at the repository.
        agent_id: names the ref.
        session: named in the commit's message.
        number: of the iteration; an earlier snapshot of the same one is replaced.

    Raises:
        GitError: that fails.
        OSError: the same.

    """
    here = worktree.git(where)
    problems: list[str] = []
    head = git.resolve_commit(here, "HEAD")
    with scratch_in(worktree.registration) as directory:
        scratch = here._replace(index_file=directory / "index")
        status, _ = look(worktree, here, scratch, problems, ())
        if status.clean:
            return Snapshot(head, None)
        picture = take_picture(worktree, scratch, head, status, problems)
        if picture.shows_head:
            return Snapshot(head, None, tuple(problems))
        message = f"ralph: after iteration {number} of session {session}\n"
        commit = picture.commit(scratch, message, session)
    ref = f"refs/ralph/snapshots/{agent_id}/{number}"
    if before := git.refs(here, ref).get(ref):
        git.move_ref(here, ref, before, commit, message)
    else:
        git.create_ref(here, ref, commit, message)
    return Snapshot(head, ref, tuple(problems))


def commit_all(worktree: LinkedWorktree, where: Git, message: str) -> str | None:
    """Commit what is uncommitted to the branch that is checked out.

    Arguments:
        worktree: of the session.
        where: git at the repository.
        message: of the commit.

    Returns:
        The commit at HEAD, ``None`` if HEAD is on no branch or git is in the middle of something: then
        nothing was done.

    Raises:
        GitError: that fails; part of it may be staged.
        OSError: the same.

    """
    here = worktree.git(where)
    with git.start_status(here, "dirty") as asking:
        branch = git.current_branch(here)
        status = git.parse_status(git.finish(asking, "status").stdout)
    if branch is None or status.unmerged or operation(worktree):
        return None
    if not status.clean:
        if failure := git.add_all(here, exclude=status.nested):
            raise failure
        git.commit(here, message)
    return git.resolve_commit(here, "HEAD")
