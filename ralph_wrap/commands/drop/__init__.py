"""Delete branches that the user no longer needs; ``restore`` brings them back for some time.

A deleted branch first gets a ref ``refs/ralph/dropped/<id>``, and its saved work one with the suffix
``-wip``. Both changes are in one transaction, and git makes them in this order: a kill in between leaves both
refs. The reflog of the new ref has the time. Snapshots of the id stay until the new ref expires.

A branch outside of ``ralph/`` gets ``refs/ralph/dropped-branches/<name>``. If the user
names no branch, such a branch goes only if the session's record and its reflog say that a session created it.

Without ``--force``, a branch stays if work would be lost. This is saved work, and commits that the main
branch has neither as they are nor as patches. For a branch without own commits, it is the commits that no
other branch holds. The branch of an unfinished session is never deleted, nor one that is checked out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ralph_wrap import branches
from ralph_wrap.branches import Branch
from ralph_wrap.branches.dropped import dropped, find
from ralph_wrap.commands.drop.refs import (
    RestorableBranch,
    RestoredBranch,
    delete,
    restorable,
    restore,
)
from ralph_wrap.commands.drop.remote import RemoteCopies
from ralph_wrap.commands.drop.safety import DropSafety, DropSelection, PreviewedTips
from ralph_wrap.errors import ConflictError, NotFoundError, RalphError, RefusedError, UsageError
from ralph_wrap.git import Git, list_refs
from ralph_wrap.git.transaction import ref_origins
from ralph_wrap.state.project import Project, objects_of, repository_of
from ralph_wrap.state.remote_refs import REMOTES, holders
from ralph_wrap.system.log import Commands
from ralph_wrap.system.text import command
from ralph_wrap.worktree import retention
from ralph_wrap.worktree.lock import repository_lock
from ralph_wrap.worktree.retention import expire


class DroppedBranch(NamedTuple):
    """The result for one branch.

    Attributes:
        id: the agent id in its name.
        branch: its name.
        tip: its object id.
        saved: the branch of its saved work, which is deleted with it.
        dropped: it is deleted.
        lost: the work that no other branch has; without ``--force`` the reason why the branch stays.
        kept: the reason why it stays.
        title: what people call its session; empty if that is not known.
        remotes: with a remote, its name once it has deleted the session; otherwise those that still have it.
        forever: it cannot be restored.

    """

    id: str | None
    branch: str
    tip: str
    saved: str | None
    dropped: bool
    lost: tuple[str, ...] = ()
    kept: str | None = None
    title: str = ""
    remotes: tuple[str, ...] = ()
    forever: bool = False


def drop(
    project: Project, wanted: DropSelection, now: float, remote: str | None = None
) -> tuple[list[DroppedBranch], list[RalphError]]:
    """Delete branches and their saved work.

    Arguments:
        now: seconds since 1970.
        remote: also delete what the sessions have on this remote, whose refs were fetched.

    Returns:
        The result of each branch, and an error for each branch that stays.

    Raises:
        UsageError: these options exclude each other, or a name stands only for the saved work of a branch.
        NotFoundError: a name has no branch; nothing was deleted.
        RalphError: there is no repository.

    """
    require_selection(wanted)
    copies = RemoteCopies(project, remote) if remote else None
    only_on_remote = _only_on_remote(project, wanted, copies) if copies else []
    wanted = wanted._replace(names=tuple(name for name in wanted.names if name not in only_on_remote))
    with objects_of(project) as objects:
        chosen = [] if only_on_remote and not wanted.names else _chosen(project, wanted)
        rows, failures = _drop(project, objects, chosen, wanted, now, copies)
        obstacles = {
            agent_id: copies.obstacle(agent_id, None, objects, force=wanted.force)
            for agent_id in only_on_remote
            if copies
        }
    if copies is None:
        return _with_holders(project, rows), failures
    return _drop_on_remote(copies, obstacles, rows, failures)


def require_selection(wanted: DropSelection) -> None:
    """Check that some branches are selected, in one way.

    Raises:
        UsageError: none is, or the options exclude each other.

    """
    if wanted.names and (wanted.merged or wanted.empty):
        raise UsageError("ids exclude --merged and --empty", "give one of them")
    if not wanted.names and not wanted.merged and not wanted.empty and wanted.older_than is None:
        raise UsageError(
            "no branch is selected", Commands.of("ralph-wrap drop ID…", "ralph-wrap drop --merged")
        )


def dropped_before(project: Project, names: Sequence[str]) -> dict[str, DroppedBranch]:
    """Return the branches that were dropped before and can be restored, by those names that mean them.

    A name that a branch has means the branch.

    Raises:
        UsageError: the title of several branches fits.
        RalphError: there is no repository.

    """
    existing, earlier = branches.read(project), dropped(project)
    found: dict[str, DroppedBranch] = {}
    for name in names:
        with contextlib.suppress(NotFoundError):
            branches.named(existing, name)
            continue
        with contextlib.suppress(NotFoundError):
            found[name] = _row(branches.named(earlier, name), (), None)
    return found


def forget(project: Project, rows: Sequence[DroppedBranch], now: float) -> list[DroppedBranch]:
    """Delete dropped branches for ever, with their snapshots.

    Arguments:
        rows: the branches; those that were not dropped stay.
        now: seconds since 1970.

    Raises:
        GitError: a ref cannot be deleted.
        RalphError: there is no repository.

    """
    going = [row for row in rows if row.dropped and row.tip]
    retention.forget(project, {name for row in going for name in (row.branch, row.saved) if name}, now)
    return [row._replace(forever=True) if row in going else row for row in rows]


class DropPreview(NamedTuple):
    """What would become of branches.

    Attributes:
        going: those that would go.
        refused: those that stay because work would be lost.
        in_use: those in use.
        tips: the commits of those that would go, by name.

    """

    going: list[DroppedBranch]
    refused: list[DroppedBranch]
    in_use: list[DroppedBranch]
    tips: dict[str, PreviewedTips]


def preview(project: Project, wanted: DropSelection, now: float) -> DropPreview:
    """Return what would become of branches, and delete nothing.

    Arguments:
        wanted: the branches; without any choice, every branch that sessions created.
        now: seconds since 1970.

    Raises:
        RalphError: there is no repository.

    """
    with objects_of(project) as objects:
        chosen = _chosen(project, wanted)
        safety = DropSafety(project, objects, chosen, now)
        found = DropPreview([], [], [], {})
        for branch in chosen:
            if not safety.fits(branch, wanted):
                continue
            lost = safety.lost(branch)
            in_use, refusal = safety.busy(branch), _refusal(branch, lost, wanted)
            rows = found.in_use if in_use else found.refused if refusal else found.going
            rows.append(_row(branch, lost, in_use or refusal))
            if rows is found.going:
                found.tips[branch.name] = PreviewedTips(branch.tip, branch.saved)
    return found


def _moved(branch: Branch, wanted: DropSelection) -> ConflictError | None:
    """Return the error for a branch that is not what the user has seen; ``None`` if it is."""
    if wanted.previewed is None or wanted.previewed[branch.name] == (branch.tip, branch.saved):
        return None
    return ConflictError(
        f"{branch.name} has moved since it was listed: the branch stays",
        f"to see it: {command('ralph-wrap', 'diff', branch.label)}",
    )


def _refusal(branch: Branch, lost: tuple[str, ...], wanted: DropSelection) -> RefusedError | None:
    """Return the error for a branch whose work would be lost; ``None`` if it may go."""
    if not lost or wanted.force:
        return None
    again = command("ralph-wrap", "drop", *["--forever"] * wanted.forever, "--force", branch.label)
    return RefusedError(
        f"{branch.name} kept, this would be lost: {'; '.join(lost)}",
        Commands.of(
            f"to see it: {command('ralph-wrap', 'diff', '--saved', branch.label)}", f"to drop it: {again}"
        ),
    )


def _only_on_remote(project: Project, wanted: DropSelection, copies: RemoteCopies) -> list[str]:
    """Return the agent ids among the names that have refs on the remote, and no branch here."""
    existing = {branch.label for branch in branches.read(project)} if wanted.names else set()
    return [name for name in wanted.names if name in copies and name not in existing]


def _drop_on_remote(
    copies: RemoteCopies,
    obstacles: Mapping[str, RalphError | None],
    rows: Sequence[DroppedBranch],
    failures: list[RalphError],
) -> tuple[list[DroppedBranch], list[RalphError]]:
    """Delete the refs of the remote, after the branches here are dropped.

    Arguments:
        obstacles: why they stay there, by the ids of the sessions that have no branch here.

    """
    dropped = [row.id for row in rows if row.dropped and row.id]
    free = [agent_id for agent_id, error in obstacles.items() if error is None]
    errors = {**obstacles} | copies.delete([*dropped, *free])
    shown = [
        row._replace(remotes=(copies.name,)) if row.id in errors and errors[row.id] is None else row
        for row in rows
    ]
    for agent_id in obstacles:
        error = errors[agent_id]
        kept = error.message if error else None
        gone = () if error else (copies.name,)
        shown.append(
            DroppedBranch(agent_id, f"ralph/{agent_id}", "", None, error is None, kept=kept, remotes=gone)
        )
    return shown, [*failures, *filter(None, errors.values())]


def _with_holders(project: Project, rows: Sequence[DroppedBranch]) -> list[DroppedBranch]:
    """Add the remotes that still have a dropped session."""
    if not any(row.dropped and row.id for row in rows):
        return [*rows]
    refs = list_refs(project.git, REMOTES)
    return [
        row._replace(remotes=tuple(holders(refs, row.id))) if row.dropped and row.id else row for row in rows
    ]


def _drop(
    project: Project,
    objects: Git,
    chosen: Sequence[Branch],
    wanted: DropSelection,
    now: float,
    copies: RemoteCopies | None,
) -> tuple[list[DroppedBranch], list[RalphError]]:
    safety = DropSafety(project, objects, chosen, now)
    rows: list[DroppedBranch] = []
    failures: list[RalphError] = []
    to_delete: list[tuple[Branch, tuple[str, ...]]] = []
    for branch in chosen:
        if not safety.fits(branch, wanted):
            continue
        error = safety.busy(branch)
        if error is not None and not wanted.names:
            continue  # the user named no ids, so branches in use are left out without an error
        lost = safety.lost(branch)
        if error is None:
            error = _moved(branch, wanted) or _refusal(branch, lost, wanted)
        if error is None and copies is not None and branch.id is not None and branch.id in copies:
            error = copies.obstacle(branch.id, branch, objects, force=wanted.force)
        if error is None:
            to_delete.append((branch, lost))
        else:
            failures.append(error)
            rows.append(_row(branch, lost, error))
    errors = _delete(project, [branch for branch, _ in to_delete], safety, now) if to_delete else {}
    for branch, lost in to_delete:
        rows.append(_row(branch, lost, errors[branch.name]))
        failures += filter(None, [errors[branch.name]])
    return rows, failures


def _chosen(project: Project, wanted: DropSelection) -> list[Branch]:
    """Return the named branches, or without a name all branches that sessions created."""
    all_branches = branches.read(project)
    if wanted.previewed is not None:
        return [branch for branch in all_branches if branch.name in wanted.previewed]
    if not wanted.names:
        stated = [branch for branch in all_branches if branch.creators and not branch.named_by_id]
        origins = ref_origins(project.git, [branch.ref for branch in stated])
        created = {
            branch.name
            for branch in stated
            if any(session in origins.get(branch.ref, "") for session in branch.creators)
        }
        return [branch for branch in all_branches if branch.named_by_id or branch.name in created]
    named = [_named(project, all_branches, name) for name in wanted.names]
    return [*{branch.name: branch for branch in named}.values()]


def _named(project: Project, all_branches: list[Branch], name: str) -> Branch:
    branch = find(project, all_branches, name)
    if branch.saved_name != branch.name and name == branch.saved_name:
        raise UsageError(
            f"{branch.saved_name} can only be dropped with {branch.name}",
            f"to drop both: {command('ralph-wrap', 'drop', branch.label)}",
        )
    return branch


def _delete(
    project: Project, to_delete: Sequence[Branch], safety: DropSafety, now: float
) -> dict[str, RalphError | None]:
    """Delete branches that are still not checked out; the repository lock keeps other processes from it."""
    try:
        with repository_lock(repository_of(project).common_dir):
            safety.look_again()
            busy = {branch.name: safety.busy(branch) for branch in to_delete}
            return busy | delete(
                project.git, [branch for branch in to_delete if busy[branch.name] is None], now
            )
    except OSError as error:
        raise RalphError(f"cannot lock the repository: {error}; nothing was dropped") from error


def _row(branch: Branch, lost: tuple[str, ...], error: RalphError | None) -> DroppedBranch:
    kept = error.message if error else None
    return DroppedBranch(
        branch.id, branch.name, branch.tip, branch.saved_name, error is None, lost, kept, branch.title
    )


__all__ = [
    "DropSelection",
    "DroppedBranch",
    "RestorableBranch",
    "RestoredBranch",
    "drop",
    "dropped",
    "dropped_before",
    "expire",
    "forget",
    "preview",
    "require_selection",
    "restorable",
    "restore",
]
