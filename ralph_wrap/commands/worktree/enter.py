"""Enter and exit a worktree in a session, which may belong to any program.

The mark of the worktree names the session that has entered it. So the name is gone with the worktree, and a
session can only exit its own worktree. An exit removes the worktree only if no work is lost. It compares the
commits with the original branch as it is now, because merged commits are not lost. If there was no branch, it
compares them with the recorded base.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ralph_wrap.branches import WIP
from ralph_wrap.commands.worktree.prepare import home_of, recover
from ralph_wrap.config import IgnoreLocation
from ralph_wrap.errors import (
    ConflictError,
    GitError,
    RalphError,
    RefusedError,
    UsageError,
    no_commit,
)
from ralph_wrap.git import (
    Git,
    Repository,
    branches_containing,
    commits_only_on,
    commits_without,
    current_branch,
    delete_ref,
    is_branch_name,
    list_refs,
    resolve_commit,
    worktree_holding,
)
from ralph_wrap.git.read_back import find_damage, other_tips
from ralph_wrap.state.ids import is_agent_id
from ralph_wrap.state.project import WORKTREES, Project, repository_of
from ralph_wrap.system import process_table, tmux
from ralph_wrap.system.log import Commands
from ralph_wrap.system.text import and_more, named
from ralph_wrap.worktree.create.new_worktree import CheckoutWatch
from ralph_wrap.worktree.create.report_copies import provide
from ralph_wrap.worktree.ignore import ensure_ignored
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.managed.create import ManagedOptions, make
from ralph_wrap.worktree.managed.find import directory_of, find, holds_its_branch
from ralph_wrap.worktree.managed.metadata import WorktreeMetadata, marked, write_mark
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.remove import remove
from ralph_wrap.worktree.save.result import Losses
from ralph_wrap.worktree.trash import new_name

_LONGEST = 100  # characters of a name
_LAST_BREATH = 2.0  # seconds for the processes of a tmux session to end
_TICK = 0.02  # seconds between two looks
_SHOWN = 20  # commits that a refusal lists
_NAMED = 5  # ignored files that the answer names


class ExitAction(Enum):
    """The action of an exit."""

    KEEP = "keep"
    REMOVE = "remove"


def action_of(word: str) -> ExitAction:
    """Return the action with a name.

    Raises:
        UsageError: there is no such action.

    """
    try:
        return ExitAction(word)
    except ValueError:
        raise UsageError(f"--action {word}: unknown action", "--action keep, or --action remove") from None


@dataclass(frozen=True)
class EnteredWorktree:
    """The result of ``enter``; the fields of the documented tool, in its spelling."""

    path: str
    branch: str
    basedOn: str  # noqa: N815
    originalCwd: str  # noqa: N815
    tmuxSession: str | None  # noqa: N815


@dataclass(frozen=True)
class ExitedWorktree:
    """The result of ``exit``; the fields of the documented tool, in its spelling."""

    action: str
    removed: bool
    path: str | None
    branch: str | None
    originalCwd: str | None  # noqa: N815
    tmuxSession: str | None  # noqa: N815
    message: str


def enter(
    project: Project,
    name: str,
    *,
    session: str,
    cwd: Path,
    ignore: IgnoreLocation,
    copy: Sequence[str],
    in_tmux: bool = False,
) -> EnteredWorktree:
    """Make the worktree ``.ralph/worktrees/NAME`` on branch ``ralph/NAME`` for a session.

    Arguments:
        name: the name of the worktree.
        session: the name of the session that enters it.
        cwd: the working directory of the session.
        ignore: the place of the ignore rule.
        copy: patterns of ignored files to copy into it.
        in_tmux: start a tmux session in it.

    Raises:
        UsageError: the name is invalid, or tmux is not installed.
        ConflictError: this session is already in a worktree, or the name exists.
        RalphError: no worktree is possible here; nothing is left of the attempt.

    """
    repository = repository_of(project)
    home_of(project)
    recover(project)
    git = project.git
    branch = f"ralph/{_checked(git, name)}"
    _require_outside(project, repository, session)
    path = project.root / WORKTREES / name
    if list_refs(git, f"refs/heads/{branch}") or os.path.lexists(path):
        raise ConflictError(f"{branch} or {path} already exists", "choose another name")
    if repository.head is None:
        raise no_commit(repository.root)
    if around := project.around_worktrees:
        ensure_ignored(*around, ignore)
    mark = WorktreeMetadata(
        branch=branch,
        base=repository.head,
        branch_created=True,
        origin=current_branch(git),
        session=session,
        original_cwd=os.fspath(cwd),
    )
    tree = make(git, repository, path, mark, ManagedOptions(), CheckoutWatch())
    provide(tree, git, project.checkout, copy)
    tmux_session = None
    if in_tmux:
        tree, tmux_session = _start_tmux(project, tree, name)
    return EnteredWorktree(os.fspath(tree.path), branch, tree.base, os.fspath(cwd), tmux_session)


def _require_outside(project: Project, repository: Repository, session: str) -> None:
    """Check that a session is in no worktree yet.

    Raises:
        ConflictError: it is in one.

    """
    if current := entered(project, repository, session):
        path, mark = current
        raise ConflictError(
            f"session {session} is already in {path} on {mark.branch}",
            _exit_command("keep", session, project),
        )


def _start_tmux(project: Project, tree: LinkedWorktree, name: str) -> tuple[LinkedWorktree, str]:
    """Start a tmux session in a new worktree, and note it in the mark; after an error the worktree goes."""
    tmux_session = ""
    try:
        tmux_session = tmux.start(f"ralph-{name}", tree.path, project.environ)
        tree, mark = find(tree.common_dir, tree.path)
        write_mark(tree.registration, mark._replace(tmux_session=tmux_session))
    except BaseException:
        if tmux_session:  # first: its shell works in the worktree, and no mark names it
            with contextlib.suppress(RalphError):
                tmux.kill(tmux_session, project.environ)
        _remove(project, tree, tree.base, lambda _: None)
        raise
    return tree, tmux_session


def leave(
    project: Project,
    action: ExitAction,
    *,
    session: str,
    discard_changes: bool = False,
) -> ExitedWorktree:
    """Exit the worktree that a session has entered; without one, do nothing.

    Arguments:
        action: keep or remove the worktree.
        session: the name of the session that exits.
        discard_changes: remove it even if work would be lost.

    Raises:
        RefusedError: work would be lost, or a process works in it; nothing has changed.
        RalphError: it is not ours any more, or git failed.

    """
    repository = project.repository
    recover(project)
    current = entered(project, repository, session) if repository else None
    if repository is None or current is None:
        message = f"No-op: session {session} has entered no worktree here; nothing was changed"
        return ExitedWorktree(action.value, False, None, None, None, None, message)
    tree, mark = find(repository.common_dir, current[0])
    if mark.session != session:
        raise ConflictError(f"another session has entered {tree.path} meanwhile", "ralph-wrap worktree list")
    # Not our working directory: it may be the worktree to remove.
    git = project.git._replace(cwd=tree.common_dir, git_dir=tree.common_dir)
    if action is ExitAction.KEEP:
        write_mark(tree.registration, mark._replace(session=None))
        message = f"{tree.path} is kept, on branch {mark.branch}"
        return _exited(action, tree, mark, message)

    tip = _tip(git, mark) if holds_its_branch(tree) else None

    def check(losses: Losses) -> None:
        if not discard_changes:
            _require_no_loss(git, tree, mark, losses, tip, project)
        if mark.tmux_session and tmux.is_in(mark.tmux_session, tree.path, project.environ):
            tmux.kill(mark.tmux_session, project.environ)
            _wait_until_empty(tree)

    losses = _remove(project, tree, tip, check)
    stays = _tip(git, mark)
    message = f"{tree.path} is removed, branch {mark.branch} {'stays' if stays else 'too'}"
    if losses.ignored_files:
        names = named(losses.ignored, _NAMED)
        message += f"; ignored files deleted with it: {losses.ignored_files} ({names})"
    return _exited(action, tree, mark, message)


def _exited(action: ExitAction, tree: LinkedWorktree, mark: WorktreeMetadata, message: str) -> ExitedWorktree:
    return ExitedWorktree(
        action=action.value,
        removed=action is ExitAction.REMOVE,
        path=os.fspath(tree.path),
        branch=mark.branch,
        originalCwd=mark.original_cwd,
        tmuxSession=mark.tmux_session,
        message=message,
    )


def _checked(git: Git, name: str) -> str:
    """Return a name that is valid in a path and in a branch, and is not an agent id."""
    if (
        "/" in name
        or name.startswith("-")
        or len(name) > _LONGEST
        or not name.isprintable()  # a zero byte, for example, is in no argument of git
        or not is_branch_name(git, f"ralph/{name}")
    ):
        raise UsageError(
            f"{name!r} cannot name a worktree",
            f"letters, digits, '-', '_' and single '.', no '/', at most {_LONGEST} characters",
        )
    if _is_of_an_agent(name):
        raise UsageError(f"{name} is reserved for the branch of an agent", "choose another name")
    return name


def _is_of_an_agent(name: str) -> bool:
    """Return whether what follows ``ralph/`` in a branch's name is an agent's id, or names its saved work."""
    return is_agent_id(name.removesuffix(WIP))


def entered(project: Project, repository: Repository, session: str) -> tuple[Path, WorktreeMetadata] | None:
    """Return the directory and the mark of the worktree that a session is in; ``None`` if it is in none.

    Arguments:
        session: the name of the session; several programs may use the same name.

    Raises:
        OSError: the registrations cannot be read.

    """
    for registration, mark in marked(repository.common_dir).items():
        name = mark.branch.removeprefix("ralph/")
        # An agent can write a mark, so its branch must be one that ``enter`` could have made.
        if mark.session == session and mark.branch.startswith("ralph/") and not _is_of_an_agent(name):
            return directory_of(registration, project.root / WORKTREES), mark
    return None


def _tip(git: Git, mark: WorktreeMetadata) -> str | None:
    ref = f"refs/heads/{mark.branch}"
    return list_refs(git, ref).get(ref)


def _exit_command(action: str, session: str, project: Project) -> str:
    """Return the command that exits a worktree, with the session if the environment does not name it."""
    is_known = project.environ.get("RALPH_SESSION_ID") == session
    named = "" if is_known else f" --session {shlex.quote(session)}"
    return f"ralph-wrap worktree exit --action {action}{named}"


def _require_no_loss(
    git: Git, tree: LinkedWorktree, mark: WorktreeMetadata, losses: Losses, tip: str | None, project: Project
) -> None:
    original = list_refs(git, mark.origin).get(mark.origin) if mark.origin else None
    since = original or resolve_commit(git, mark.base) or ""
    tips = [*([tip] if tip else []), *losses.commits]
    session, discard = mark.session or "", "remove --discard-changes"
    instead = Commands.of(
        f"to keep it: {_exit_command('keep', session, project)}",
        f"to remove it with all its work: {_exit_command(discard, session, project)}",
    )
    # A list of its commits could be too short.
    if damage := find_damage(git, tips, other_tips(git, f"refs/heads/{mark.branch}")):
        raise RefusedError(f"{tree.path} stays, since its commits cannot be read: {damage}", instead)
    alone = commits_without(git, tips, since)
    if tip is not None:  # the original branch may have started from a commit that no branch held
        alone += [commit for commit in commits_only_on(git, mark.branch, tip) if commit not in alone]
    lines = [line for line in losses.lines() if not line.startswith("commit on no branch")]
    for commit in alone[:_SHOWN]:
        other_branches = [name for name in branches_containing(git, commit.id) if name != mark.branch]
        also_on = f" (also on {', '.join(other_branches)})" if other_branches else ""
        lines.append(f"commit not on {_name(mark)}: {commit.id[:12]} {commit.subject}{also_on}")
    lines += and_more(len(alone), _SHOWN, " commits")
    if alone or not losses.none:
        raise RefusedError(f"{tree.path} would be lost with: {'; '.join(lines)}", instead)


def _wait_until_empty(tree: LinkedWorktree) -> None:
    """Wait until the processes of a killed tmux session have ended; the removal names those that remain."""
    deadline = time.monotonic() + _LAST_BREATH
    ancestors = process_table.ancestors(os.getpid())
    while {pid for pid, _ in process_table.occupants(tree.path)} - ancestors and time.monotonic() < deadline:
        time.sleep(_TICK)


def _name(mark: WorktreeMetadata) -> str:
    return mark.origin.removeprefix("refs/heads/") if mark.origin else mark.base[:12]


def _remove(
    project: Project,
    tree: LinkedWorktree,
    tip: str | None,
    check: Callable[[Losses], None],
) -> Losses:
    """Remove a worktree, and its branch if it is still at the commit that was checked."""
    home = home_of(project)
    git = project.git._replace(cwd=tree.common_dir, git_dir=tree.common_dir)
    aside = new_name()
    losses = remove(
        tree, git, home.trash, aside, check=check, visitors=frozenset(process_table.ancestors(os.getpid()))
    )
    ref = f"refs/heads/{tree.branch}"
    with repository_lock(tree.common_dir):
        if tree.branch_created and tip and not worktree_holding(git, ref):
            with contextlib.suppress(GitError):  # a new commit is on it: it stays
                delete_ref(git, ref, tip)
    return losses
