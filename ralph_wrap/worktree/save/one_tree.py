"""Save the work in one worktree or submodule, without its submodules (see ``whole``)."""

from __future__ import annotations

import contextlib
import os

from ralph_wrap.errors import GitError
from ralph_wrap.git import (
    create_ref,
    delete_ref,
    existing_commits,
    list_refs,
    move_ref,
    read_head,
    run_git,
    start_to_verify,
    what_is_missing,
    worktree_holding,
)
from ralph_wrap.git.index import write_tree
from ralph_wrap.worktree.save.commits import make_snapshots, named_objects, save_commits, unreachable
from ralph_wrap.worktree.save.index import copy_index, resolve, status_of
from ralph_wrap.worktree.save.inspect import has_submodules, head_of, look, nested
from ralph_wrap.worktree.save.registration import operation, unsaved_bookkeeping
from ralph_wrap.worktree.save.result import SavedWork
from ralph_wrap.worktree.save.trees import WORK_TITLE, WorktreeTrees, counted, write_trees
from ralph_wrap.worktree.save.walk import walk
from ralph_wrap.worktree.warm import taken_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.git import Git, Head
    from ralph_wrap.git.status import Status
    from ralph_wrap.worktree.model import LinkedWorktree
    from ralph_wrap.worktree.save.result import SaveRequest
    from ralph_wrap.worktree.save.walk import FileStamps


def save_tree(
    tree: LinkedWorktree,
    git: Git,
    index: Path,
    request: SaveRequest,
    *,
    inner: tuple[str, ...] = (),
) -> SavedWork:
    """Save the work that would be lost with a worktree, and verify it.

    Arguments:
        tree: the worktree.
        git: git at the repository.
        index: a free path for a copy of the index.
        request: how to save it.
        inner: paths of its submodules, which this function leaves out.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read or written.

    """
    worktree_git = tree.git(git)
    scratch = worktree_git._replace(index_file=index)
    problems: list[str] = []
    head = head_of(tree, worktree_git)
    if request.unstarted:
        left = _left_by_checkout(tree, scratch, head.commit or "HEAD", inner)
        if left is not None:
            named = named_objects(tree.registration, worktree_git, problems)
            commits = save_commits(worktree_git, request.agent_id, named, head)
            return SavedWork(None, (), commits, (), 0, tuple(problems), left, head=head, named=named)
    status, walked = look(tree, worktree_git, scratch, problems, inner)
    problems += [f"nested repository {path} cannot be saved" for path in nested(status, walked)]
    branch = None
    if not status.clean and request.commits_only:
        problems.append(counted(len(status.changed) + len(status.untracked), "uncommitted path"))
    elif not status.clean:
        branch = _save_files(tree, scratch, head, (status, walked.stamps), problems, request)
    if branch is None and head.branch is None and head.commit:
        tip = _tip(worktree_git, request.branch)
        # Work that was put back is on its branch already, and stays there if the next session needs it.
        own = (f"refs/heads/{request.branch}",) if tip and tip == request.restored else ()
        if unreachable(worktree_git, [head.commit], without=own):
            branch = _name(worktree_git, request, head.commit, tip)
    named = named_objects(tree.registration, worktree_git, problems)
    return SavedWork(
        branch=branch,
        paths=(*status.changed, *status.untracked),
        snapshots=save_commits(worktree_git, request.agent_id, named, head),
        ignored=status.ignored,
        ignored_files=walked.count_below(status.ignored),
        problems=tuple(problems),
        head=head,
        named=named,
        stamps=walked.stamps,
    )


def retire(git: Git, request: SaveRequest) -> None:
    """Turn the branch of saved work that was put back into a snapshot; the session leaves no such work.

    Arguments:
        git: git in the repository.

    Raises:
        GitError: git failed; the work is on the branch, in a snapshot, or both.

    """
    ref, restored = f"refs/heads/{request.branch}", request.restored
    if restored is None or _tip(git, request.branch) != restored or worktree_holding(git, ref):
        return
    make_snapshots(git, request.agent_id, [restored])
    delete_ref(git, ref, restored)


def save_without_files(worktree: LinkedWorktree, git: Git, index: Path, request: SaveRequest) -> SavedWork:
    """Save what the registration of a worktree holds: its index and its commits. Its directory is gone.

    Arguments:
        git: git at the repository.
        index: a free path for a copy of the index, in a directory of our own.
        request: how to save it.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read or written.

    """
    nothing = index.with_name("files")
    nothing.mkdir(exist_ok=True)
    worktree_git = worktree.git(git, nothing)
    scratch = worktree_git._replace(index_file=index)
    problems = unsaved_bookkeeping(worktree)
    if has_submodules(worktree):
        problems.append(f"repositories of its submodules are in {worktree.registration / 'modules'}")
    head = read_head(worktree_git)
    copy_index(worktree, scratch)
    resolve(scratch)
    staged = write_tree(scratch)
    picture = WorktreeTrees(head.commit, head.tree, staged, staged)
    branch = None
    if not picture.shows_head:
        branch = _save_picture(worktree, scratch, head, picture, problems, request)
    elif head.branch is None and head.commit and unreachable(worktree_git, [head.commit]):
        branch = _name(worktree_git, request, head.commit, _tip(worktree_git, request.branch))
    named = named_objects(worktree.registration, worktree_git, problems)
    commits = save_commits(worktree_git, request.agent_id, named, head)
    return SavedWork(branch, (), commits, (), 0, tuple(problems), head=head, named=named)


def _left_by_checkout(
    worktree: LinkedWorktree, scratch: Git, commit: str, inner: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Return the files that an interrupted checkout has not written; ``None`` if a process worked in it."""
    warm_commit = taken_at(worktree.registration)
    before = None
    with contextlib.suppress(GitError):  # git may have pruned this commit
        before = _differing(scratch, warm_commit) if warm_commit else None
    found = _differing(scratch, commit) - {*inner}  # they may be cloned, but not checked out yet
    if inner and walk(worktree.path, inner, worktree.registration / "index").repositories:
        return None
    unwritten = tuple(
        path
        for path in found
        if not os.path.lexists(worktree.path / path) or (before is not None and path not in before)
    )
    return unwritten if len(unwritten) == len(found) else None


def _differing(scratch: Git, commit: str) -> set[str]:
    run_git(scratch, "read-tree", commit)
    status = status_of(scratch)
    return {*status.unstaged, *status.untracked}


def _save_files(
    worktree: LinkedWorktree,
    scratch: Git,
    head: Head,
    found: tuple[Status, FileStamps],
    problems: list[str],
    request: SaveRequest,
) -> str | None:
    picture = write_trees(worktree, scratch, head, found, problems)
    if picture.shows_head:
        return None
    return _save_picture(worktree, scratch, head, picture, problems, request)


def _save_picture(
    worktree: LinkedWorktree,
    scratch: Git,
    head: Head,
    picture: WorktreeTrees,
    problems: list[str],
    request: SaveRequest,
) -> str:
    message = f"{WORK_TITLE}{request.session}\n\nWhat was not committed when the session ended.\n"
    if unfinished := operation(worktree):
        message += f"A {unfinished} was in progress.\n"
    commit = picture.commit(scratch, message, request.session)
    with start_to_verify(scratch, commit, head.commit) as verifying:
        branch = _name_picture(scratch, picture, commit, request)
        if missing := what_is_missing(verifying):
            problems.append(f"{branch} lacks objects: {missing}")
    return branch


def _name_picture(scratch: Git, picture: WorktreeTrees, commit: str, request: SaveRequest) -> str:
    """Name the commit of a picture, if an earlier save has not kept the same picture; return its name."""
    branch = request.branch
    try:
        create_ref(scratch, f"refs/heads/{branch}", commit, _reason(request))
    except GitError:
        if (before := _tip(scratch, branch)) is None:
            raise
        if not picture.is_in(scratch, before):
            return _name(scratch, request, commit, before)
    return branch


def _tip(git: Git, branch: str) -> str | None:
    ref = f"refs/heads/{branch}"
    return list_refs(git, ref).get(ref)


def _name(git: Git, request: SaveRequest, commit: str, before: str | None) -> str:
    """Point ``ralph/<id>-wip`` to a commit, and return the name that the commit has now.

    The former commit of the branch gets a snapshot. If the branch must stay, or a worktree has it checked
    out, the new commit gets a snapshot.

    Arguments:
        before: the former commit; ``None`` if there is no such branch.

    """
    branch = request.branch
    ref = f"refs/heads/{branch}"
    reason = _reason(request)
    if before is None:
        create_ref(git, ref, commit, reason)
    elif before != commit:
        if request.keeps_branch or worktree_holding(git, ref):
            return make_snapshots(git, request.agent_id, [commit])[0]
        make_snapshots(git, request.agent_id, existing_commits(git, [before]))  # git may have pruned it
        move_ref(git, ref, before, commit, reason, no_deref=True)
    return branch


def _reason(request: SaveRequest) -> str:
    return f"ralph-wrap: end of {request.session}"
