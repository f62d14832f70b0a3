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

from typing import TYPE_CHECKING

from ralph_wrap.worktree.save.inspect import has_submodules, tree_holds, tree_losses
from ralph_wrap.worktree.save.one_tree import save_tree
from ralph_wrap.worktree.save.submodule_repositories import find
from ralph_wrap.worktree.save.submodules import add_losses, hold, save_submodules

if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.git import Git
    from ralph_wrap.worktree.model import LinkedWorktree
    from ralph_wrap.worktree.save.result import Losses, SavedSubmodule, SavedWork


def save(
    worktree: LinkedWorktree,
    git: Git,
    index: Path,
    *,
    agent_id: str,
    session: str,
    commits_only: bool = False,
    unstarted: bool = False,
) -> SavedWork:
    """Save what would be lost with the worktree and its submodules, and verify it.

    Arguments:
        worktree: whose work.
        git: git at the repository.
        index: where a copy of the index can be made; nothing is there yet.
        agent_id: names the branch and the snapshots.
        session: named in the commit's message.
        commits_only: do not save files; having to is then a problem.
        unstarted: no agent has worked in it: files that are missing were never checked out.

    Raises:
        GitError: it cannot even be told what there is to save.
        OSError: the same.

    """
    problems: list[str] = []
    within: tuple[SavedSubmodule, ...] = ()
    if has_submodules(worktree):
        within = save_submodules(
            worktree,
            git,
            index,
            problems,
            agent_id=agent_id,
            session=session,
            commits_only=commits_only,
            unstarted=unstarted,
        )
    saved = save_tree(
        worktree,
        git,
        index,
        agent_id=agent_id,
        session=session,
        commits_only=commits_only,
        unstarted=unstarted and not problems,
        inner=tuple(one.path for one in within if one.path),
    )
    return saved._replace(
        paths=(*saved.paths, *(path for one in within for path in one.paths)),
        ignored=(*saved.ignored, *(path for one in within for path in one.ignored)),
        ignored_files=saved.ignored_files + sum(one.saved.ignored_files for one in within),
        problems=(*problems, *saved.problems),
        inner=within,
    )


def holds(worktree: LinkedWorktree, git: Git, index: Path, directory: Path, saved: SavedWork) -> bool:
    """Tell whether everything in a worktree, and all its commits, are still as they were saved.

    Arguments:
        worktree: saved without a problem.
        git: git at the repository.
        index: as it was given to :func:`save`.
        directory: where the worktree's directory is now.
        saved: what :func:`save` returned.

    Raises:
        GitError: that cannot be told.
        OSError: the same.

    """
    has_inner = bool(saved.inner) or has_submodules(worktree)
    if has_inner and not hold(worktree, git, index, directory, saved.inner):
        return False
    return tree_holds(worktree, git, index, directory, saved)


def losses(worktree: LinkedWorktree, git: Git, index: Path) -> Losses:
    """Look for everything that would be lost with a worktree and its submodules; nothing is changed.

    Arguments:
        worktree: which one.
        git: git at the repository.
        index: where a copy of the index can be made; nothing is there yet.

    Raises:
        GitError: it cannot be told.
        OSError: the same.

    """
    if not has_submodules(worktree):
        return tree_losses(worktree, git, index)
    # What is wrong with them is told where they are looked at, in the last call.
    inner = tuple(one.path for one in find(worktree, git, worktree.path, []) if one.path)
    return add_losses(worktree, git, index, tree_losses(worktree, git, index, inner))
