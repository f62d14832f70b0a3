"""The branch on which other branches land, and its checkouts, which move with it."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap import branches
from ralph_wrap.branches import HEADS
from ralph_wrap.branches.landing import ways_to_land
from ralph_wrap.errors import ConflictError, NotFoundError
from ralph_wrap.git import (
    Git,
    Repository,
    decode,
    finish_git,
    is_branch_name,
    list_refs,
    list_worktrees,
    pointer,
    symbolic_ref_target,
)
from ralph_wrap.git import merge as merging
from ralph_wrap.git.home import home_of
from ralph_wrap.git.merge import PathChange
from ralph_wrap.git.status import parse_status, start_status
from ralph_wrap.state.ids import is_session_id
from ralph_wrap.state.project import Project, repository_of
from ralph_wrap.system import files
from ralph_wrap.system.log import Commands
from ralph_wrap.system.text import command
from ralph_wrap.worktree.own_rule import IGNORE, is_rule
from ralph_wrap.worktree.user_checkout import UserCheckout, in_the_way, names


class LandingTarget(NamedTuple):
    """A branch: its short name, and its full name."""

    name: str
    ref: str


def target_of(project: Project, into: str | None, configured: str | None) -> LandingTarget:
    """Return the branch to land on.

    Arguments:
        into: its short name; ``None`` for the main branch.
        configured: ``main`` in the configuration.

    Raises:
        NotFoundError: the branch does not exist.
        ConflictError: it is a symbolic ref to another branch.
        RalphError: there is no repository.

    """
    repository_of(project)
    git = project.git
    helps, why = ["to list the branches: git branch"], ""
    if into is None:
        main = branches.main_branch(project, configured)
        name, ref = main.name, main.ref
        if not configured and not ref.startswith(HEADS):
            helps = ways_to_land(main)
            why = ", which is what origin/HEAD names"
    else:
        name, ref = into, HEADS + into
    if not ref.startswith(HEADS) or not is_branch_name(git, name) or ref not in list_refs(git, ref):
        raise NotFoundError(
            f"there is no local branch {name!r} to land on{why}",
            Commands.of(*helps, "to name one: ralph-wrap merge ID --into BRANCH"),
        )
    if other := symbolic_ref_target(git, ref):
        other = other.removeprefix(HEADS)
        raise ConflictError(f"{name} is a symbolic ref to {other}", f"--into {other}")
    return LandingTarget(name, ref)


def checkouts_of(git: Git, repository: Repository, target: LandingTarget) -> list[UserCheckout]:
    """Return every checkout of the target.

    Raises:
        ConflictError: one of them is not accessible, or belongs to a session.
        GitError: git cannot list them.
        OSError: the file system cannot list them.

    """
    checkouts = []
    for number, listed in enumerate(list_worktrees(git)):
        if listed.branch != target.name:
            continue
        info = listed._replace(path=_main_path(repository, listed.path)) if number == 0 else listed
        git_dir = repository.common_dir if number == 0 else _registration(repository.common_dir, info.path)
        if git_dir is None or not info.path.is_dir() or not _leads_to(info.path, git_dir):
            raise ConflictError(
                f"{target.name} is checked out at {info.path}, which is not accessible here",
                f"land it there; if it no longer exists: git worktree remove {shlex.quote(str(info.path))}",
            )
        if info.path.parent.parts[-2:] == (".ralph", "worktrees") and is_session_id(info.path.name):
            raise ConflictError(
                f"{target.name} is checked out in the worktree of a session, {info.path}",
                Commands.of(
                    f"ralph-wrap stop {info.path.name}",
                    f"if it has ended: ralph-wrap rm {info.path.name}",
                ),
            )
        checkout_git = git._replace(
            cwd=info.path, git_dir=git_dir, common_dir=repository.common_dir, work_tree=info.path
        )
        checkouts.append(UserCheckout(info.path, git_dir, checkout_git))
    return checkouts


def _main_path(repository: Repository, listed: Path) -> Path:
    """Return the path of the main checkout; git lists another one if the repository is outside of it."""
    home = home_of(repository.root, repository.common_dir)
    for path in (listed, *([home.directory] if home.is_checkout else [])):
        if pointer.git_dir_of(path) == repository.common_dir:
            return path
    return listed


def _leads_to(path: Path, git_dir: Path) -> bool:
    """Return whether a directory is still the checkout with this git directory."""
    return pointer.git_dir_of(path) == git_dir.resolve()


def _registration(common_dir: Path, path: Path) -> Path | None:
    """Return the registration that names a linked worktree."""
    back_pointer = pointer.gitdir_content(path)
    for registration in sorted(common_dir.glob("worktrees/*")):
        try:
            if files.read(registration / pointer.BACK) == back_pointer:
                return registration
        except OSError:
            continue
    return None


def require_movable(
    repository: Repository,
    target: LandingTarget,
    checkouts: Sequence[UserCheckout],
) -> None:
    """Check that no operation of git is in progress on the target, and that its checkouts are clean.

    The line that a session added to ``.gitignore`` may be uncommitted (see :func:`without_rule`).

    Raises:
        ConflictError: an operation is in progress, a session works there, or changes are uncommitted.
        GitError: git failed.

    """
    common_dir = repository.common_dir
    for git_dir in (common_dir, *sorted(common_dir.glob("worktrees/*"))):
        for state in ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"):
            if _line(git_dir / state) in {target.name, target.ref}:
                operation = merging.operation(git_dir)
                raise ConflictError(f"a {operation} of {target.name} is in progress", "finish it or abort it")
    for checkout in checkouts:
        _require_clean(target, checkout)


def _line(path: Path) -> str:
    try:
        return decode(files.read(path)).strip()
    except OSError:
        return ""


def _require_clean(target: LandingTarget, checkout: UserCheckout) -> None:
    checked_out = f"{target.name} is checked out in {checkout.path}"
    if _is_worked_in(checkout.path):
        raise ConflictError(
            f"{checked_out}, where a session works without isolation", "to see it: ralph-wrap ps"
        )
    if operation := merging.operation(checkout.git_dir):
        raise ConflictError(f"{checked_out}, where a {operation} is in progress", "finish it or abort it")
    if (checkout.git_dir / "index.lock").exists():
        raise ConflictError(
            f"{checked_out}, whose index is locked",
            Commands.of(
                "wait for git to finish there",
                f"if no git is running: rm {shlex.quote(str(checkout.git_dir / 'index.lock'))}",
            ),
        )
    with start_status(checkout.git) as asking:
        status = parse_status(finish_git(asking, "status").stdout)
    changed = [path for path in status.changed if path != IGNORE or not is_rule(checkout)]
    if changed:
        raise ConflictError(
            f"{checked_out}, where changes are not committed: {names(changed)}",
            Commands.of(
                f"to see them: {command('git', '-C', checkout.path, 'status')}",
                f"to put them aside: {command('git', '-C', checkout.path, 'stash', 'push')}",
            ),
        )


def _is_worked_in(top: Path) -> bool:
    with contextlib.suppress(OSError):  # locks do not work there, so no session holds one
        return files.is_locked(top)
    return False


def require_room(target: LandingTarget, checkout: UserCheckout, changes: Sequence[PathChange]) -> None:
    """Check that the landing overwrites no untracked or ignored file.

    Raises:
        ConflictError: it would overwrite one.

    """
    blocking = list(in_the_way(checkout.path, changes))
    if IGNORE in blocking and is_rule(checkout):
        blocking.remove(IGNORE)
    if blocking:
        raise ConflictError(
            f"{target.name} is checked out in {checkout.path}, where untracked files would be overwritten:"
            f" {names(blocking)}",
            "move them away, or commit them",
        )
