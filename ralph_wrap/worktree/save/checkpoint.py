"""Keep the uncommitted work of an iteration: as a hidden ref, or as a commit on the branch.

A session that is killed later loses only the iteration that ran. This is so even if the worktree's directory
is lost with its disk or its container. A snapshot changes no file of the worktree.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from ralph_wrap.errors import GitError
from ralph_wrap.git import (
    Git,
    create_ref,
    current_branch,
    finish_git,
    list_refs,
    move_ref,
    read_head,
)
from ralph_wrap.git.index import commit_index, is_staged, list_index
from ralph_wrap.git.read_back import find_damage
from ralph_wrap.git.safe.submodules import changed_inside, pointers_below
from ralph_wrap.git.status import Status, parse_status, stage_all, start_status
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.apart import store_again
from ralph_wrap.worktree.save.clones import own_work
from ralph_wrap.worktree.save.commits import make_snapshots
from ralph_wrap.worktree.save.damage import may_be_damage
from ralph_wrap.worktree.save.index import scratch_in
from ralph_wrap.worktree.save.inspect import look
from ralph_wrap.worktree.save.registration import is_replaced, operation
from ralph_wrap.worktree.save.trees import AWAY_TITLE, SNAPSHOT_TITLE, session_of, write_trees
from ralph_wrap.worktree.save.walk import DirectoryWalk

_ATTEMPTS = 3  # to store work while a ``git gc`` deletes it


class Snapshot(NamedTuple):
    """The state of a worktree at the end of an iteration.

    Attributes:
        head: the commit at HEAD.
        ref: ``refs/ralph/snapshots/<id>/<n>``, with a commit on top of *head* that holds the uncommitted
            work. ``None`` if there was none, and HEAD was on the branch of the session.
        problems: one line for each part that could not be kept, for example work in other repositories.
        in_submodules: one line for work in submodules whose repositories are in the registration.

    """

    head: str | None
    ref: str | None
    problems: tuple[str, ...] = ()
    in_submodules: tuple[str, ...] = ()


def snapshot(worktree: LinkedWorktree, git: Git, *, agent_id: str, session: str, number: int) -> Snapshot:
    """Keep the uncommitted work of an iteration as a hidden ref.

    Every object is read back before it gets the ref. A ``git gc`` that has begun before, and goes on, can
    break the snapshot later (see ``commits.drop_lost_snapshots``). The end of the session stores all work
    anew, in a way that no gc disturbs (see ``apart``).

    Arguments:
        worktree: the worktree of the session.
        git: git at the repository.
        agent_id: names the ref.
        session: named in the commit's message.
        number: the number of the iteration; an earlier snapshot of the same iteration is replaced.

    Raises:
        GitError: git failed, or an object of the work is missing or damaged; no ref was made.
        OSError: a file cannot be read or written.

    """
    worktree_git = _git(worktree, git)
    with scratch_in(worktree.registration) as directory:
        index = directory / "index"
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if attempt > 1:
                    store_again(worktree, worktree_git, index)
                kept, commit = _stored(worktree, worktree_git._replace(index_file=index), session, number)
                if commit is None:
                    return kept
                damage = find_damage(worktree_git, [commit], [kept.head] if kept.head else [])
                if damage is None:
                    return kept._replace(ref=_named(worktree_git, commit, agent_id, session, number))
                failure = GitError("cat-file", 0, f"error: {damage}")
            except GitError as error:
                if not may_be_damage(error):
                    raise
                failure = error
    raise failure


def _stored(worktree: LinkedWorktree, scratch: Git, session: str, number: int) -> tuple[Snapshot, str | None]:
    """Store the work; return what is known of it, and its commit, ``None`` if there is no work."""
    worktree_git = scratch._replace(index_file=None)
    problems, in_submodules = list[str](), list[str]()
    head = read_head(worktree_git)
    status, walked = look(worktree, worktree_git, scratch, problems, ())
    if walked.repositories:
        _look_into(worktree, scratch, walked, status, problems, in_submodules)
    is_away = head.branch != f"refs/heads/{worktree.branch}"
    if status.clean and not is_away:
        return Snapshot(head.commit, None, tuple(problems), tuple(in_submodules)), None
    picture = write_trees(worktree, scratch, head, (status, walked.stamps), problems)
    kept = Snapshot(head.commit, None, tuple(problems), tuple(in_submodules))
    if picture.shows_head and not is_away:
        return kept, None
    return kept, picture.commit(scratch, _message(number, session, is_away=is_away), session)


def _message(number: int, session: str, *, is_away: bool) -> str:
    return f"{AWAY_TITLE if is_away else SNAPSHOT_TITLE}{number} of session {session}\n"


def _named(git: Git, commit: str, agent_id: str, session: str, number: int) -> str:
    """Give the commit of a snapshot its ref, and return that.

    A resumed session counts from one again. What the ref named until now may be the only copy of the work of
    the session before, so that gets another ref first.
    """
    ref, reason = f"refs/ralph/snapshots/{agent_id}/{number}", f"ralph-wrap: snapshot of {session}"
    if before := list_refs(git, ref).get(ref):
        if session_of(git, before) != session:
            make_snapshots(git, agent_id, [before])
        move_ref(git, ref, before, commit, reason, no_deref=True)
    else:
        create_ref(git, ref, commit, reason)
    return ref


def has_no_other_work(worktree: LinkedWorktree, git: Git, head: str) -> bool:
    """Return whether a worktree that git reports clean at a commit has no work but that of its branch.

    It has some if HEAD is not on the branch, or if an index flag hides changes of a file. It also has some if
    the agent has replaced the repository.

    Arguments:
        worktree: the worktree of the session.
        git: git at the repository.
        head: the commit.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read.

    """
    worktree_git = _git(worktree, git)
    found = read_head(worktree_git)
    is_on_branch = found.branch == f"refs/heads/{worktree.branch}"
    return is_on_branch and found.commit == head and not any(list_index(worktree_git).hidden())


def commit_all(worktree: LinkedWorktree, git: Git, message: str) -> bool:
    """Commit the uncommitted work to the session's branch.

    Arguments:
        worktree: the worktree of the session.
        git: git at the repository.
        message: the message of the commit.

    Returns:
        Whether this function made a commit. It makes none if nothing has changed, or during a git operation.
        Nor does it if HEAD is detached, or on another branch, which may be the user's.

    Raises:
        GitError: git failed; some files may be staged.
        OSError: a file cannot be read.

    """
    worktree_git = _git(worktree, git)
    with start_status(worktree_git) as running:
        branch = current_branch(worktree_git)
        status = parse_status(finish_git(running, "status").stdout)
    if branch != f"refs/heads/{worktree.branch}" or status.unmerged or operation(worktree):
        return False
    if status.changed or len(status.nested) < len(status.untracked):
        if failure := stage_all(worktree_git, exclude=status.nested):
            raise failure
        if is_staged(worktree_git):  # it does not if only line endings have changed
            commit_index(worktree_git, message)
            return True
    return False


def _git(worktree: LinkedWorktree, git: Git) -> Git:
    if worktree.path.is_symlink():  # it may lead to the project, where the files are the user's
        raise OSError(errno.ELOOP, "a symlink is in the worktree's place", str(worktree.path))
    if is_replaced(worktree.registration):
        raise OSError(errno.EINVAL, "HEAD or index is no file any more", str(worktree.registration))
    return worktree.git(git)


def _look_into(
    worktree: LinkedWorktree,
    scratch: Git,
    walked: DirectoryWalk,
    status: Status,
    problems: list[str],
    in_submodules: list[str],
) -> None:
    """Name the repositories in a worktree with work that a snapshot does not hold."""
    top, copies, git = worktree.path, worktree.copies, scratch._replace(index_file=None)
    known = {submodule.path: submodule.git_dir for submodule in pointers_below(git, top, copies)}
    inner = tuple(f"{path}/" for path in known)
    index = scratch.index_file
    assert index is not None
    for path in sorted({*walked.repositories, *status.nested} - {*known}):
        if path.startswith(inner):
            continue
        if walked.is_below(path, status.ignored) and own_work(worktree, git, index, path) is None:
            continue
        problems.append(f"nested repository {path}")
    lines = [(path, "the uncommitted work in it") for path in changed_inside(git, top, copies)]
    lines += [(path, "the commits in it") for path in sorted({*known} & {*status.changed})]
    for path, what in lines:
        is_found = known[path].is_relative_to(worktree.registration)
        (in_submodules if is_found else problems).append(f"submodule {path}: {what}")
