"""Save the work in a worktree that no branch holds.

All of this would be deleted with the worktree, and none of it is on a branch:

- Files on the disk that differ from HEAD or are untracked. The save ignores the configuration, and the flags
  *assume unchanged* and *skip worktree*. The files become one commit on top of HEAD, on ``ralph/<id>-wip``.
- An index that differs from the files. It becomes the second parent of this commit, as in ``git stash``. So
  ``git stash apply --index ralph/<id>-wip`` restores both.
- Commits of a detached HEAD. ``ralph/<id>-wip`` is the last one, or its child.
- Commits that only the worktree's registration names (see ``commits``).
- The same in every submodule that was initialised in it (see ``submodules``).
- Work that git cannot save or does not see. These are nested repositories, also in ignored directories, and
  files below a submodule's path. Each is a problem.

If saved work of an earlier session was put back into the worktree, and the session ends with nothing
uncommitted, ``ralph/<id>-wip`` becomes a snapshot.

Objects are stored apart from the repository and enter it as one pack (see ``apart``). Every new one is read
back before a ref names it.

The save uses a copy of the index, and names the repository explicitly: the agent may have replaced the
worktree's ``.git``. After a problem the rest is still saved. The caller must not remove a worktree whose save
has a problem.
"""

from __future__ import annotations

from pathlib import Path

from ralph_wrap.git import Git
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.save.inspect import has_submodules, tree_holds, tree_losses
from ralph_wrap.worktree.save.one_tree import retire, save_tree
from ralph_wrap.worktree.save.result import Losses, SavedSubmodule, SavedWork, SaveRequest
from ralph_wrap.worktree.save.submodule_repositories import find
from ralph_wrap.worktree.save.submodules import add_losses, save_submodules, submodules_hold


def save(
    worktree: LinkedWorktree,
    git: Git,
    index: Path,
    request: SaveRequest,
) -> SavedWork:
    """Save the work that would be lost with a worktree and its submodules, and verify it.

    Arguments:
        git: git at the repository.
        index: a free path for a copy of the index.
        request: how to save it.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read or written.

    """
    problems: list[str] = []
    submodules: tuple[SavedSubmodule, ...] = ()
    if has_submodules(worktree):
        submodules = save_submodules(worktree, git, index, problems, request)
    saved = save_tree(
        worktree,
        git,
        index,
        request._replace(unstarted=request.unstarted and not problems),
        inner=tuple(submodule.path for submodule in submodules if submodule.path),
    )
    saved = _with_submodules(saved._replace(problems=(*problems, *saved.problems)), submodules)
    if saved.branch is None and saved.clean and not saved.problems and not saved.damage:
        retire(git, request)
    return saved


def _with_submodules(saved: SavedWork, submodules: tuple[SavedSubmodule, ...]) -> SavedWork:
    """Return the saved work of a worktree together with that of its submodules."""
    return saved._replace(
        paths=(*saved.paths, *(path for submodule in submodules for path in submodule.paths)),
        ignored=(*saved.ignored, *(path for submodule in submodules for path in submodule.ignored)),
        ignored_files=saved.ignored_files + sum(submodule.saved.ignored_files for submodule in submodules),
        inner=submodules,
        damage=saved.damage or next((inner.saved.damage for inner in submodules if inner.saved.damage), ""),
    )


def holds(worktree: LinkedWorktree, git: Git, index: Path, directory: Path, saved: SavedWork) -> bool:
    """Return whether all files in a worktree, and all its commits, are unchanged since the save.

    Arguments:
        worktree: a worktree that was saved without a problem.
        git: git at the repository.
        index: the index path of :func:`save`.
        directory: the present directory of the worktree.
        saved: the result of :func:`save`.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read.

    """
    has_inner = bool(saved.inner) or has_submodules(worktree)
    if has_inner and not submodules_hold(worktree, git, index, directory, saved.inner):
        return False
    return tree_holds(worktree, git, index, directory, saved)


def losses(worktree: LinkedWorktree, git: Git, index: Path) -> Losses:
    """Return the work that would be lost with a worktree and its submodules; change nothing.

    Arguments:
        git: git at the repository.
        index: a free path for a copy of the index.

    Raises:
        GitError: git failed.
        OSError: a file cannot be read.

    """
    if not has_submodules(worktree):
        return tree_losses(worktree, git, index)
    # No list of problems is needed here: add_losses finds the same problems again.
    inner = tuple(submodule.path for submodule in find(worktree, git, worktree.path, []) if submodule.path)
    return add_losses(worktree, git, index, tree_losses(worktree, git, index, inner))
