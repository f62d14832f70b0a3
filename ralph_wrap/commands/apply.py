"""Put saved work into a checkout, overwriting nothing.

What is put there is what the session had not committed: what lies between its last commit and its saved work.
It is brought together with the commit that the checkout is at in a temporary worktree first. Then, and only
if each file that would change is as that commit has it, or already as it is to become, all of them change on
the disk, or none does. Nothing is staged, and new files are untracked, as after ``git stash apply``.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import git
from ralph_wrap.errors import ConflictError, GitError, NotFoundError, RalphError
from ralph_wrap.git import merge as merging
from ralph_wrap.state import project
from ralph_wrap.state.registry import Registry
from ralph_wrap.worktree import temporary
from ralph_wrap.worktree.user_checkout import Checkout, apart, in_the_way, names, on_disk, put_back

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ralph_wrap.branches import Branch
    from ralph_wrap.git import Git, Repository
    from ralph_wrap.git.merge import Moved
    from ralph_wrap.state.project import Project
    from ralph_wrap.system.log import Log
    from ralph_wrap.worktree.temporary import Trial

# Of a commit that is thrown away at once: nobody has to be known here for that.
_NOBODY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "ralph-wrap"), ("EMAIL", "ralph-wrap@localhost"))
}


class Applied(NamedTuple):
    """What was put into a checkout.

    Attributes:
        id: agent id, ``None`` if the branch is not named by one.
        branch: the one that holds the saved work.
        checkout: top level of the checkout.
        files: paths that have changed.
        there: paths that were as they should be already.
        submodules: paths of submodules whose commit differs: they are left as they are.

    """

    id: str | None
    branch: str
    checkout: str
    files: tuple[str, ...]
    there: tuple[str, ...]
    submodules: tuple[str, ...]


def apply(
    place: Project,
    environ: Mapping[str, str],
    branch: Branch,
    *,
    top: Path,
    told: Log,
    stopped: Callable[[], bool] = lambda: False,
) -> Applied:
    """Put the saved work of a branch into a checkout.

    Arguments:
        branch: whose saved work.
        top: top level of a checkout of the same repository.
        stopped: tells that a signal came.

    Raises:
        NotFoundError: nothing was saved.
        ConflictError: files would be overwritten, or do not fit; nothing has changed.
        RalphError: it cannot be tried, or not be written; nothing has changed.

    """
    repository = project.repository_of(place)
    where = place.git(environ)
    if branch.saved is None or branch.saved_name is None:
        raise NotFoundError(f"{branch.name} has no saved work", "ralph-wrap review shows which have")
    home = Registry(place.root / project.RUN)
    if next(project.registries(place, environ)) != home:
        raise RalphError(f"{home.directory} leads elsewhere: it is not followed", "replace it by a directory")
    try:
        checkout = _checkout(where, repository, top)
        with temporary.turn(repository, home, told, stopped):
            temporary.tidy(repository, home)
            head = git.resolve_commit(checkout.here, "HEAD")
            if head is None:
                raise ConflictError(f"{top} has no commit yet", "git commit --allow-empty -m start")
            with temporary.opened(where, repository, home, head, whole=False) as opened:
                changes = _changes(opened, branch, head, top)
                written, there = _write(checkout, opened, head, changes[0], changes[1])
    except OSError as error:
        raise RalphError(f"{error}; {branch.saved_name} is as it was", "is the disk full?") from error
    return Applied(
        branch.id,
        branch.saved_name,
        os.fspath(top),
        tuple(written),
        tuple(there),
        tuple(change.path for change in changes[1] if _is_submodule(change)),
    )


def _checkout(where: Git, repository: Repository, top: Path) -> Checkout:
    found = git.run(where._replace(cwd=top), "rev-parse", "--absolute-git-dir", "--git-common-dir")
    git_dir, common = (top / line for line in git.lines(found.stdout))
    if common.resolve() != repository.common_dir:
        raise ConflictError(f"{top} belongs to another repository", "name a checkout of this project")
    here = where._replace(cwd=top, git_dir=git_dir, common_dir=repository.common_dir, work_tree=top)
    return Checkout(top, git_dir, here)


def _changes(opened: Trial, branch: Branch, head: str, top: Path) -> tuple[str, list[Moved]]:
    """Return the tree that saved work and a commit make together, and how it differs from the commit."""
    here = opened.here._replace(env={**opened.here.env, **_NOBODY})
    saved = str(branch.saved)
    base = _base(here, branch, saved)
    delta = git.commit_tree(here, git.tree_of(here, saved), [base] if base else [], "saved work\n")
    if conflicts := merging.bring(here, delta):
        raise ConflictError(
            f"{branch.saved_name} conflicts with what is checked out in {top}: {names(conflicts)}",
            f"git merge {branch.saved_name}, and resolve them; or look: git diff {branch.saved_name}^"
            f" {branch.saved_name}",
        )
    tree = git.write_tree(here)
    return tree, merging.moved(here, head, tree)


def _base(here: Git, branch: Branch, saved: str) -> str | None:
    """Return the commit that the saved work was made on: of commits that no branch holds, the first one's."""
    if not branch.only_saved and merging.is_ancestor(here, branch.tip, saved):
        return branch.tip
    return next(iter(git.parents(here, saved)[1:]), None)


def _is_submodule(change: Moved) -> bool:
    return merging.GITLINK in {change.old_mode, change.new_mode}


def _write(
    checkout: Checkout, opened: Trial, head: str, tree: str, changes: list[Moved]
) -> tuple[list[str], list[str]]:
    """Change the files of a checkout; return those that were changed, and those that need not be."""
    modules = [change for change in changes if change.old_mode == merging.GITLINK != change.new_mode]
    changes = [change for change in changes if not _is_submodule(change)]
    unmerged = merging.unmerged(checkout.here)
    if unmerged:
        raise ConflictError(f"{checkout.path} has conflicts: {names(unmerged)}", "resolve them first")
    index = opened.registration / "apply"
    hidden = merging.left_out(checkout.here)
    found = on_disk(checkout, apart(checkout, index), head, changes)
    absent = {path for path in hidden if not os.path.lexists(checkout.path / path)}
    there = [one.path for one in changes if found[one.path] == one.after and one.path not in absent]
    coming = [one for one in changes if one.path not in there]
    obstacles = [one.path for one in coming if found[one.path] != one.before and one.path not in absent]
    more = in_the_way(checkout.path, [*coming, *modules])
    obstacles += [path for path in more if path not in obstacles]
    if obstacles:
        raise ConflictError(
            f"files in {checkout.path} would be overwritten: {names(obstacles)}", "commit or stash them"
        )
    index.unlink()
    shutil.copy2(checkout.git_dir / "index", index)
    copy = apart(checkout, index)
    merging.store(copy, there)
    try:
        merging.move_files(copy, head, tree)
    except GitError:
        if left := put_back(checkout, opened.registration / "back", head, tree, partly=True, but=there):
            raise RalphError(f"only a part of it could be written: {names(left)}", "git status") from None
        raise
    return [one.path for one in coming], there
