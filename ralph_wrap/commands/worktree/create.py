"""Make a worktree for another program, on a new branch that is named after a task.

All checks come before the first change. Then it makes, in this order: our own directory, the ignore rule,
branch and worktree in one transaction (``worktree.managed.create``), and copies of ignored files. It looks
for a free name first, and git claims the name. If another process takes it first, it tries the next number.
It only reads the caller's checkout.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.commands.worktree.branch_name import branch_name
from ralph_wrap.commands.worktree.prepare import home_of
from ralph_wrap.config import IgnoreLocation
from ralph_wrap.errors import ConflictError, GitError, IsolationError, NotFoundError, UsageError, no_commit
from ralph_wrap.git import (
    Git,
    Repository,
    current_branch,
    finish_git,
    is_ignored,
    list_refs,
    list_worktrees,
    resolve_commit,
    run_git,
)
from ralph_wrap.git.safe.submodules import changed_inside
from ralph_wrap.git.status import parse_status, start_status
from ralph_wrap.session.preflight import layout_of
from ralph_wrap.state.project import WORKTREES, Project, repository_of
from ralph_wrap.system import files
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.log import current, get_logger
from ralph_wrap.system.text import named
from ralph_wrap.worktree.create.new_worktree import CheckoutWatch
from ralph_wrap.worktree.create.report_copies import provide
from ralph_wrap.worktree.ignore import RULE, appended, ensure_ignored
from ralph_wrap.worktree.layout import EVERYTHING
from ralph_wrap.worktree.managed.create import ManagedOptions, make
from ralph_wrap.worktree.managed.git_config import require_configurable
from ralph_wrap.worktree.managed.metadata import WorktreeMetadata
from ralph_wrap.worktree.model import LinkedWorktree

log = get_logger()

_RACES = 1000  # names that other processes may take before us; more means a fault
_NAMED = 3  # changed files that a warning lists
_GITIGNORE = ".gitignore"


class CreatedWorktree(NamedTuple):
    """A new worktree; the fields of the documented tool, in its spelling."""

    path: str
    branch: str
    basedOn: str  # noqa: N815


def create(
    project: Project,
    words: str,
    *,
    prefix: str,
    base: str | None,
    path: Path | None,
    hooks: bool,
    sparse: Sequence[str],
    links: Sequence[str],
    ignore: IgnoreLocation,
    copy: Sequence[str],
    cancel: CancelToken,
) -> CreatedWorktree:
    """Make a worktree on a new branch.

    Arguments:
        words: a slug for the name of the branch.
        prefix: the start of the name.
        base: the start of the branch; ``None`` stands for HEAD.
        path: the absolute path of the new directory; ``None`` stands for ``.ralph/worktrees/<branch>``.
        hooks: git hooks run in it.
        sparse: directories, or files in them, to check out; empty for all.
        links: directories to share with the project by symlink.
        ignore: the place of the ignore rule.
        copy: patterns of ignored files to copy into it.
        cancel: whether a signal has come.

    Raises:
        UsageError: the prefix or the path is invalid.
        NotFoundError: the base names no commit.
        ConflictError: the path already exists.
        RefusedError: hooks cannot be switched off here.
        RalphError: no worktree is possible here; nothing is left of the attempt.

    """
    repository = repository_of(project)
    git = project.git
    wanted = branch_name(git, prefix, words)
    commit = _commit(git, repository, base)
    target = None if path is None else _checked_path(project, repository, path)
    _free_name(git, wanted, project.root / WORKTREES)
    layout = layout_of(sparse, tuple(links), project, commit)
    if not hooks or layout != EVERYTHING:
        require_configurable(git, repository)
    _warn_of_changes(git, repository)
    home_of(project)
    if around := project.around_worktrees:
        _add_ignore_rule(*around, ignore)
    mark = WorktreeMetadata(branch=wanted, base=commit, branch_created=True, origin=current_branch(git))
    options, watch = (
        ManagedOptions(hooks_off=not hooks, layout=layout),
        CheckoutWatch(cancel, current().progress),
    )
    making = partial(make, git, repository, options=options, watch=watch)
    tree = _make(git, making, project.root / WORKTREES, target, mark)
    provide(tree, git, project.checkout, copy, cancel=cancel)
    return CreatedWorktree(os.fspath(tree.path), tree.branch, tree.base)


def _commit(git: Git, repository: Repository, base: str | None) -> str:
    if repository.head is None:
        raise no_commit(repository.root)
    commit = repository.head if base is None else resolve_commit(git, base)
    if commit is None:
        raise NotFoundError(f"--base {base} names no commit", "to list commits: git log --oneline --all")
    return commit


def _checked_path(project: Project, repository: Repository, path: Path) -> Path:
    """Return a resolved path that does not exist, and is in no other checkout."""
    target = path.resolve()
    if os.path.lexists(path) or os.path.lexists(target):
        raise ConflictError(f"--path {path} already exists", "name a new directory")
    above = next(parent for parent in target.parents if parent.exists())
    if not above.is_dir():
        raise UsageError(f"--path {path}: {above} is not a directory", "name another path")
    if target.is_relative_to(repository.common_dir):
        raise UsageError(
            f"--path {path} is inside git's directory {repository.common_dir}", "name another path"
        )
    main, *linked = list_worktrees(project.git)
    is_own = target.is_relative_to(project.root / WORKTREES)
    for worktree in linked:
        if target.is_relative_to(worktree.path) and not (
            is_own and worktree.path in {project.root, project.checkout}
        ):
            raise UsageError(
                f"--path {path} is inside another worktree, {worktree.path}", "name another path"
            )
    if target.is_relative_to(main.path):
        name = f"{target.relative_to(main.path)}/"
        if not is_own and not is_ignored(project.git._replace(cwd=main.path), name):
            log.warning(
                "path.not_ignored",
                f"git does not ignore {target}: git add would add it",
                f"ignore it with this line: {name}",
            )
    return target


def _warn_of_changes(git: Git, repository: Repository) -> None:
    """Warn that uncommitted work stays in the checkout; our own ignore rule does not count."""
    try:
        with start_status(repository.checkout(git)) as asking:
            status = parse_status(finish_git(asking, "status").stdout)
        inside = changed_inside(repository.checkout(git), repository.root)
    except GitError as error:
        log.warning(
            "changes.unknown", f"cannot look for uncommitted work in {repository.root}: {error.message}"
        )
        return
    changed = [*dict.fromkeys((*status.changed, *inside)), *status.untracked]
    if _GITIGNORE in changed and _is_only_the_rule(git, repository):
        changed.remove(_GITIGNORE)
    if changed:
        log.warning(
            "changes.left",
            f"uncommitted work in {repository.root} is not in the new worktree: {named(changed, _NAMED)}",
            "it stays where it is; commit all files that the new worktree needs",
        )


def _is_only_the_rule(git: Git, repository: Repository) -> bool:
    committed = run_git(git, "cat-file", "blob", f"HEAD:{_GITIGNORE}", accept=(0, 128))
    try:
        return files.read(repository.root / _GITIGNORE) == appended(committed.stdout)
    except OSError:
        return False


def _add_ignore_rule(git: Git, repository: Repository, ignore: IgnoreLocation) -> None:
    try:
        changed = ensure_ignored(git, repository, ignore)
    except IsolationError as error:
        raise IsolationError(
            error.message, 'add the line by hand, or ignore = "exclude" or "off" in .ralph/config.toml'
        ) from error
    if changed is not None:
        log.event("ignore_rule.added", f"{RULE} added to {changed}", path=os.fspath(changed))


def _make(
    git: Git,
    making: Callable[[Path, WorktreeMetadata], LinkedWorktree],
    directory: Path,
    path: Path | None,
    mark: WorktreeMetadata,
) -> LinkedWorktree:
    for _ in range(_RACES):
        name = _free_name(git, mark.branch, directory if path is None else None)
        target = path or directory / name
        try:
            return making(target, mark._replace(branch=name))
        except IsolationError:
            if path is not None and os.path.lexists(path):
                raise ConflictError(f"{path} exists meanwhile", "name another directory") from None
            if not os.path.lexists(target) and not list_refs(git, f"refs/heads/{name}"):
                raise
    raise ConflictError(f"other processes took {_RACES} names like {mark.branch} at this moment", "try again")


def _free_name(git: Git, wanted: str, directory: Path | None) -> str:
    """Return the first of ``wanted``, ``wanted-2``, … that neither a branch nor a directory has."""
    existing = {name.removeprefix("refs/heads/") for name in list_refs(git, "refs/heads/")}
    parents = {
        name[:index]: name for name in sorted(existing) for index, sign in enumerate(name) if sign == "/"
    }
    for number in count(1):
        name = wanted if number == 1 else f"{wanted}-{number}"
        if below := parents.get(name):
            raise ConflictError(
                f"branch {below} leaves no room for a branch {name}",
                "another --prefix, or: git branch -m to rename it",
            )
        if name not in existing and not (directory and os.path.lexists(directory / name)):
            return name
    raise AssertionError("numbers do not end")
