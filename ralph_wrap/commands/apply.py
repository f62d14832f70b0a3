"""Put saved work into a checkout, overwriting nothing.

Saved work is the difference between the session's last commit and its ``-wip`` commit. A temporary worktree
first merges it with HEAD of the checkout. Each file that would change must be as in HEAD, or already as in
the merge. Then either all these files change on the disk, or none. Nothing is staged, and new files are
untracked, as after ``git stash apply``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.branches import Branch
from ralph_wrap.errors import (
    ConflictError,
    GitError,
    LockedError,
    NotFoundError,
    RalphError,
    explained,
    no_commit,
)
from ralph_wrap.git import (
    Git,
    Repository,
    commit_and_parents,
    commit_tree,
    decode_lines,
    resolve_commit,
    run_git,
    tree_of,
)
from ralph_wrap.git import merge as merging
from ralph_wrap.git.index import GITLINK, write_tree
from ralph_wrap.git.merge import PathChange
from ralph_wrap.git.read_back import require_whole
from ralph_wrap.git.safe.filters import require_same_files
from ralph_wrap.git.safe.genuine import require_genuine
from ralph_wrap.state.project import Project, own_registry, prepare_root, repository_of
from ralph_wrap.system.cancel import NEVER, CancelToken
from ralph_wrap.system.log import Commands, get_logger
from ralph_wrap.system.text import command
from ralph_wrap.worktree import temporary
from ralph_wrap.worktree.own_rule import IGNORE, without_rule
from ralph_wrap.worktree.temporary import TemporaryWorktree
from ralph_wrap.worktree.user_checkout import (
    UserCheckout,
    git_with_index,
    in_the_way,
    names,
    on_disk,
    restore_files,
)

log = get_logger()

# The identity of a temporary commit, which must work without ``user.name`` and ``user.email``.
_SYMLINK = "120000"  # the mode of a symlink in a tree
_TYPED = 10  # paths in one command
_NOBODY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "ralph-wrap"), ("EMAIL", "ralph-wrap@localhost"))
}


class AppliedChanges(NamedTuple):
    """The result of ``apply``.

    Attributes:
        id: agent id, ``None`` if the branch name has none.
        branch: the branch that holds the saved work.
        checkout: top level of the checkout.
        files: paths that have changed.
        there: paths that already had the saved content.
        submodules: paths of submodules whose commit differs; they stay as they are.
        title: what people call the session; empty if that is not known.

    """

    id: str | None
    branch: str
    checkout: str
    files: tuple[str, ...]
    there: tuple[str, ...]
    submodules: tuple[str, ...]
    title: str = ""


def apply(
    project: Project,
    branch: Branch,
    *,
    top: Path,
    cancel: CancelToken = NEVER,
) -> AppliedChanges:
    """Put the saved work of a branch into a checkout.

    Arguments:
        branch: the branch with the saved work.
        top: top level of a checkout of the same repository.
        cancel: whether a signal has come.

    Raises:
        NotFoundError: the branch has no saved work.
        ConflictError: files would be overwritten, or conflict; nothing has changed.
        UntrustedError: a filter that the user has not approved applies to a file.
        TamperedError: an object holds something else than its name says.
        DamageError: an object of the saved work is damaged or missing; nothing has changed.
        RalphError: the trial or the write failed; nothing has changed.

    """
    repository = repository_of(project)
    git = project.git
    if branch.saved is None or branch.saved_name is None:
        raise NotFoundError(
            f"{branch.name} has no saved work", "to see branches with saved work: ralph-wrap review"
        )
    prepare_root(project)
    home = own_registry(project)
    try:
        checkout = _checkout(git, repository, top)
        with temporary.turn(repository, home, cancel):
            temporary.tidy(repository, home)
            head = resolve_commit(checkout.git, "HEAD")
            if head is None:
                raise no_commit(top)
            require_same_files(git, repository, head, branch.saved)
            with temporary.opened(git, repository, home, head, whole=False) as opened:
                changes = _changes(opened, branch, head, top)
                saved = [merging.content(git, change.new) for change in changes[1] if _is_ignore_file(change)]
                with without_rule(repository, [checkout], changes[1], saved):
                    written, unchanged = _write(checkout, opened, head, changes[0], changes[1])
    except LockedError as error:
        raise explained(error) from error
    except OSError as error:
        raise RalphError(f"{error}; {branch.saved_name} is unchanged", "is the disk full?") from error
    return AppliedChanges(
        branch.id,
        branch.saved_name,
        os.fspath(top),
        tuple(written),
        tuple(unchanged),
        tuple(change.path for change in changes[1] if _is_submodule(change)),
        branch.title,
    )


def _checkout(git: Git, repository: Repository, top: Path) -> UserCheckout:
    directories = run_git(git._replace(cwd=top), "rev-parse", "--absolute-git-dir", "--git-common-dir")
    git_dir, common = (top / line for line in decode_lines(directories.stdout))
    if common.resolve() != repository.common_dir:
        raise ConflictError(f"{top} belongs to another repository", "name a checkout of this project")
    checkout_git = git._replace(cwd=top, git_dir=git_dir, common_dir=repository.common_dir, work_tree=top)
    return UserCheckout(top, git_dir, checkout_git)


def _changes(opened: TemporaryWorktree, branch: Branch, head: str, top: Path) -> tuple[str, list[PathChange]]:
    """Return the tree of the merge of saved work and a commit, and its differences from the commit."""
    git = opened.git._replace(env={**opened.git.env, **_NOBODY})
    saved = str(branch.saved)
    try:
        base = _base(git, branch, saved)
    except GitError:
        require_whole(git, [saved], [head])  # says more than git
        raise
    require_genuine(git, base or head, saved)
    require_whole(git, [saved], [head])
    delta = commit_tree(git, tree_of(git, saved), [base] if base else [], "saved work\n")
    if conflicts := merging.bring(git, delta):
        raise ConflictError(
            f"{branch.saved_name} conflicts with what is checked out in {top}: {names(conflicts)}",
            Commands.of(
                *_ways_on(opened.git, branch, head),
                f"to see it: {command('git', 'diff', f'{branch.saved_name}^', str(branch.saved_name))}",
            ),
        )
    tree = write_tree(git)
    require_genuine(git, head, tree)
    changes = merging.moved(git, head, tree)
    if links := _links_over_directories(top, changes):
        for path in links:
            log.warning(
                "link.left",
                f"the symlink {path} is left out: {top} has a directory there",
                f"it stays in the saved work: {command('git', 'show', f'{branch.saved_name}:{path}')}",
            )
        words = "".join(f"{path}\0" for path in links).encode("utf-8", "surrogateescape")
        run_git(git, "update-index", "--force-remove", "-z", "--stdin", stdin=words)
        tree = write_tree(git)
        changes = merging.moved(git, head, tree)
    return tree, changes


def _links_over_directories(top: Path, changes: list[PathChange]) -> list[str]:
    """Return the new symlinks at whose place a checkout has a directory of files that git does not track.

    An agent links ``node_modules`` to that of the main checkout, and a rule for a directory ignores no link.
    """
    paths = [change.path for change in changes]
    return [
        change.path
        for change in changes
        if change.before is None
        and change.new_mode == _SYMLINK
        and (top / change.path).is_dir()
        and not (top / change.path).is_symlink()
        and not any(path.startswith(f"{change.path}/") for path in paths)
    ]


def _ways_on(git: Git, branch: Branch, head: str) -> list[str]:
    """Return what brings saved work nearer to a checkout that it conflicts with.

    It is never a merge of the saved work itself: that would land all of it, with what nobody has chosen.
    """
    if not branch.only_saved and not merging.is_ancestor(git, branch.tip, head):
        return [
            f"first land the commits below it: {command('ralph-wrap', 'merge', branch.label)}",
            f"then: {command('ralph-wrap', 'apply', branch.label)}",
        ]
    if branch.id is None:
        return []
    request = "Merge the main branch into your branch, resolve the conflicts, and commit."
    return [f"to let the agent do it: {command('ralph-wrap', 'resume', branch.id, '-m', request)}"]


def _base(git: Git, branch: Branch, saved: str) -> str | None:
    """Return the commit on which the saved work was made.

    If the branch does not contain it, this is the second parent, a commit that no branch holds.
    """
    if not branch.only_saved and merging.is_ancestor(git, branch.tip, saved):
        return branch.tip
    return next(iter(commit_and_parents(git, saved)[1:]), None)


def _is_ignore_file(change: PathChange) -> bool:
    return change.path == IGNORE and change.after is not None and not _is_submodule(change)


def _is_submodule(change: PathChange) -> bool:
    return GITLINK in {change.old_mode, change.new_mode}


def _write(
    checkout: UserCheckout, opened: TemporaryWorktree, head: str, tree: str, changes: list[PathChange]
) -> tuple[list[str], list[str]]:
    """Change the files of a checkout; return the changed paths, and those that already were right."""
    modules = [change for change in changes if change.old_mode == GITLINK != change.new_mode]
    changes = [change for change in changes if not _is_submodule(change)]
    unmerged = merging.unmerged(checkout.git)
    if unmerged:
        raise ConflictError(f"{checkout.path} has conflicts: {names(unmerged)}", "resolve them first")
    index = opened.registration / "apply"
    hidden = merging.left_out(checkout.git)
    contents = on_disk(checkout, git_with_index(checkout, index), head, changes)
    absent = {path for path in hidden if not os.path.lexists(checkout.path / path)}
    unchanged = [
        change.path
        for change in changes
        if contents[change.path] == change.after and change.path not in absent
    ]
    to_write = [change for change in changes if change.path not in unchanged]
    obstacles = [
        change.path
        for change in to_write
        if contents[change.path] != change.before and change.path not in absent
    ]
    blocking = in_the_way(checkout.path, [*to_write, *modules])
    obstacles += [path for path in blocking if path not in obstacles]
    if obstacles:
        raise ConflictError(
            f"files in {checkout.path} would be overwritten: {names(obstacles)}",
            _ways_to_put_aside(checkout.path, obstacles),
        )
    index.unlink()
    shutil.copy2(checkout.git_dir / "index", index)
    copy = git_with_index(checkout, index)
    merging.store(copy, unchanged)
    try:
        merging.move_files(copy, head, tree)
    except GitError:
        if failed := restore_files(
            checkout, opened.registration / "back", head, tree, partly=True, but=unchanged
        ):
            raise RalphError(f"only some files were written: {names(failed)}", "git status") from None
        raise
    return [change.path for change in to_write], unchanged


def _ways_to_put_aside(top: Path, paths: Sequence[str]) -> str:
    """Return the commands that show files and take them out of the way; ignored ones, too."""
    ways = [f"to see them: {command('git', '-C', top, 'status', '--ignored')}"]
    if len(paths) <= _TYPED:
        stash = command("git", "--literal-pathspecs", "-C", top, "stash", "push", "--all", "--", *paths)
        ways.append(f"to put them aside: {stash}")
    return Commands.of(*ways)
