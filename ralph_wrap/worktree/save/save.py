"""Save what a worktree holds and no branch does.

What is looked at, since each of it goes with the worktree and none of it is on a branch:

- files on disk that differ from HEAD or are untracked, whatever the configuration, assume-unchanged or
  skip-worktree say: they become one commit on top of HEAD, on ``ralph/<id>-wip``;
- an index that differs from the files: that commit's second parent, as ``git stash`` does, so that
  ``git stash apply --index ralph/<id>-wip`` brings both back;
- commits of a detached HEAD: ``ralph/<id>-wip`` itself, or what it stands on;
- commits that only the worktree's own bookkeeping knows (see ``commits``);
- the same of every submodule that was initialised in it (see ``submodules``);
- what git cannot save or does not even see (repositories nested in the worktree, also in ignored
  directories, files below a submodule's path): a problem.

Everything is done through a copy of the index, and with the repository named explicitly: the agent may
have replaced the worktree's ``.git`` by then. A problem never stops the rest from being saved; whoever
gets a result with problems must not remove the worktree.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import git
from ralph_wrap.errors import GitError
from ralph_wrap.worktree.save.commits import make_snapshots, save_commits, unheld, unreachable
from ralph_wrap.worktree.save.index import lift_flags, not_in_index, status_of
from ralph_wrap.worktree.save.registration import operation, unsaved_bookkeeping
from ralph_wrap.worktree.save.trees import counted, take_picture
from ralph_wrap.worktree.save.walk import walk

if TYPE_CHECKING:
    from collections.abc import Collection

    from ralph_wrap.git import Git, Status
    from ralph_wrap.worktree.model import LinkedWorktree
    from ralph_wrap.worktree.save.submodules import Inner
    from ralph_wrap.worktree.save.trees import Picture
    from ralph_wrap.worktree.save.walk import Walk


class Saved(NamedTuple):
    """What a worktree held besides its branch.

    Attributes:
        branch: ``ralph/<id>-wip`` if something was uncommitted or on no branch.
        paths: what was uncommitted, as ``git status`` names it.
        snapshots: refs that were made for commits that no branch held.
        ignored: ignored files and directories (with a slash), which are not saved.
        ignored_files: how many files those are.
        problems: what could not be saved, one line each; empty if the worktree may go.
        missing: files that were never checked out, or are as they were before that.
        inner: what was saved of its submodules.

    """

    branch: str | None
    paths: tuple[str, ...]
    snapshots: tuple[str, ...]
    ignored: tuple[str, ...]
    ignored_files: int
    problems: tuple[str, ...]
    missing: tuple[str, ...] = ()
    inner: tuple[Inner, ...] = ()

    @property
    def clean(self) -> bool:
        """Nothing was uncommitted."""
        return not self.paths

    @property
    def own_ignored(self) -> tuple[str, ...]:
        """Its ignored files without those in submodules."""
        return tuple({*self.ignored} - {path for one in self.inner for path in one.ignored})


class _Head(NamedTuple):
    commit: str | None
    detached: bool


def save(
    worktree: LinkedWorktree,
    where: Git,
    index: Path,
    *,
    agent_id: str,
    session: str,
    commits_only: bool = False,
    unstarted: bool = False,
    inner: tuple[str, ...] | None = None,
) -> Saved:
    """Save what would be lost with the worktree, and verify it.

    Arguments:
        worktree: whose work.
        where: git at the repository.
        index: where a copy of the index can be made; nothing is there yet.
        agent_id: names the branch and the snapshots.
        session: named in the commit's message.
        commits_only: do not save files; having to is then a problem.
        unstarted: no agent has worked in it: files that are missing were never checked out.
        inner: paths of its submodules, which are saved by themselves; ``None``: save them, too.

    Raises:
        GitError: it cannot even be told what there is to save.
        OSError: the same.

    """
    here = worktree.git(where)
    scratch = here._replace(index_file=index)
    problems: list[str] = []
    within: tuple[Inner, ...] = ()
    if inner is None and has_submodules(worktree):
        from ralph_wrap.worktree.save.submodules import save_submodules  # noqa: PLC0415 -- few have any

        within = save_submodules(
            worktree,
            where,
            index,
            problems,
            agent_id=agent_id,
            session=session,
            commits_only=commits_only,
            unstarted=unstarted,
        )
    inner = inner or tuple(one.path for one in within if one.path)
    head = _head(here)
    if unstarted and not problems:
        left = _left_by_checkout(worktree, scratch, head.commit or "HEAD", inner)
        if left is not None:
            commits = save_commits(worktree.registration, here, agent_id, problems)
            return Saved(None, (), commits, (), 0, (), left, within)
    status, walked = look(worktree, here, scratch, problems, inner)
    problems += [f"nested repository {path} cannot be saved" for path in nested(status, walked)]
    branch = None
    if not status.clean and commits_only:
        problems.append(counted(len(status.changed) + len(status.untracked), "uncommitted path"))
    elif not status.clean:
        branch = _save_files(worktree, scratch, head, status, problems, agent_id, session)
    if branch is None and head.detached and head.commit and unreachable(here, [head.commit]):
        branch = _name(here, agent_id, head.commit, session)
    return Saved(
        branch=branch,
        paths=(*status.changed, *status.untracked, *(path for one in within for path in one.paths)),
        snapshots=save_commits(worktree.registration, here, agent_id, problems),
        ignored=(*status.ignored, *(path for one in within for path in one.ignored)),
        ignored_files=walked.count_below(status.ignored) + sum(one.saved.ignored_files for one in within),
        problems=tuple(problems),
        inner=within,
    )


def has_submodules(worktree: LinkedWorktree) -> bool:
    """Tell whether repositories of submodules would go with a worktree."""
    return os.path.lexists(worktree.registration / "modules")


def _left_by_checkout(
    worktree: LinkedWorktree, scratch: Git, commit: str, inner: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Return what a checkout has not got to when it was cut short; ``None`` if somebody has worked there."""
    from ralph_wrap.worktree.pool.entry import taken_at  # noqa: PLC0415 -- for the dead only

    at = taken_at(worktree.registration)
    before = None
    with contextlib.suppress(GitError):  # that commit may be on no branch any more, and gone
        before = _differing(scratch, at) if at else None
    found = _differing(scratch, commit) - {*inner}  # they may have been cloned, and not be checked out yet
    if inner and walk(worktree.path, inner).repositories:
        return None
    left = tuple(
        path
        for path in found
        if not os.path.lexists(worktree.path / path) or (before is not None and path not in before)
    )
    return left if len(left) == len(found) else None


def _differing(scratch: Git, commit: str) -> set[str]:
    git.run(scratch, "read-tree", commit)
    status = status_of(scratch)
    return {*status.unstaged, *status.untracked}


def holds(
    worktree: LinkedWorktree, where: Git, index: Path, place: Path, saved: Saved, *, alone: bool = False
) -> bool:
    """Tell whether everything in a worktree, and all its commits, are still as they were saved.

    Arguments:
        worktree: saved without a problem.
        where: git at the repository.
        index: as it was given to :func:`save`.
        place: where the worktree's directory is now.
        saved: what :func:`save` returned.
        alone: its submodules are looked at by somebody else.

    Raises:
        GitError: that cannot be told.
        OSError: the same.

    """
    here = worktree.git(where, place)
    if not alone and (saved.inner or has_submodules(worktree)):
        from ralph_wrap.worktree.save.submodules import hold  # noqa: PLC0415 -- few have any

        if not hold(worktree, where, index, place, saved.inner):
            return False
    if unheld(worktree.registration, here, []):
        return False  # a commit was made since, of which only the registration knows
    if index.exists():
        inner = {one.path for one in saved.inner}
        return {*not_in_index(here._replace(index_file=index))} <= {*saved.missing} | inner
    return status_of(here).clean


def look(
    worktree: LinkedWorktree, here: Git, scratch: Git, problems: list[str], inner: Collection[str]
) -> tuple[Status, Walk]:
    """Return what a worktree holds besides its HEAD, whatever flags hide it.

    Arguments:
        worktree: which one.
        here: git in it.
        scratch: the same with the copy of the index, which is made if it is needed.
        problems: gets a line for all that git does not see or cannot save.
        inner: paths of its submodules, into which nobody looks here.

    Raises:
        GitError: it cannot be told.
        OSError: the same.

    """
    with (
        git.start_status(here, "dirty") as asking,
        git.start(here, "ls-files", "-v", "-s", "-z") as entries,
    ):
        walked = walk(worktree.path, inner)
        problems += walked.problems
        problems += unsaved_bookkeeping(worktree)
        try:
            answer = git.finish(asking, "status").stdout
            listing = git.finish(entries, "ls-files").stdout
        except GitError as error:
            problems.append(f"the index cannot be read, what was staged in it is not saved: {error.message}")
            head = git.resolve_commit(here, "HEAD")
            git.run(scratch, "read-tree", *((head,) if head else ("--empty",)))
            return status_of(scratch), walked
    for path in re.findall(rb"(?:\A|\0). 160000 [0-9a-f]+ \d\t([^\0]+)", listing):
        directory = worktree.path / git.text(path)
        if directory.is_dir() and not (directory / ".git").exists() and any(directory.iterdir()):
            problems.append(f"git does not look at the files below the submodule's path {git.text(path)}")
    if lift_flags(worktree, scratch, listing):
        return status_of(scratch), walked
    return git.parse_status(answer), walked


def nested(status: Status, walked: Walk) -> list[str]:
    """Return the repositories in a worktree that are not its own."""
    return sorted({*walked.repositories, *status.nested, *walked.bare_beside(status.ignored)})


def _head(here: Git) -> _Head:
    symbolic = git.run(here, "symbolic-ref", "--quiet", "HEAD", accept=(0, 1))
    return _Head(git.resolve_commit(here, "HEAD"), detached=symbolic.status == 1)


def _save_files(
    worktree: LinkedWorktree,
    scratch: Git,
    head: _Head,
    status: Status,
    problems: list[str],
    agent_id: str,
    session: str,
) -> str | None:
    picture = take_picture(worktree, scratch, head.commit, status, problems)
    if picture.shows_head:
        return None
    branch = f"ralph/{agent_id}-wip"
    if not _is_saved_already(scratch, branch, picture):
        message = (
            f"ralph: saved work of session {session}\n\nWhat was not committed when the session ended.\n"
        )
        if unfinished := operation(worktree):
            message += f"A {unfinished} was in progress.\n"
        branch = _name(scratch, agent_id, picture.commit(scratch, message, session), session)
    if missing := git.missing_objects(scratch, branch, head.commit):
        problems.append(f"{branch} lacks {missing} objects")
    return branch


def _is_saved_already(here: Git, branch: str, picture: Picture) -> bool:
    """Tell whether somebody who died after it has saved the same: files, HEAD and index."""
    commits = git.parents(here, f"refs/heads/{branch}")
    if not commits or (picture.head is not None and picture.head not in commits):
        return False
    return [git.tree_of(here, commit) for commit in commits] == picture.trees


def _name(here: Git, agent_id: str, commit: str, session: str) -> str:
    """Make ``ralph/<id>-wip`` name a commit, and return what names it now.

    What the branch named before gets a snapshot; if somebody works on it, the commit gets one instead.
    """
    branch = f"ralph/{agent_id}-wip"
    ref = f"refs/heads/{branch}"
    reason = f"ralph-wrap: end of {session}"
    before = git.refs(here, ref).get(ref)
    if before is None:
        git.create_ref(here, ref, commit, reason)
    elif before != commit:
        if git.worktree_holding(here, ref):
            return make_snapshots(here, agent_id, [commit])[0]
        make_snapshots(here, agent_id, [before])
        git.move_ref(here, ref, before, commit, reason, itself=True)
    return branch
