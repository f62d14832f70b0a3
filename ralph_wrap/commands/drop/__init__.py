"""Delete branches that the user no longer needs; ``restore`` brings them back for some time.

A deleted branch first gets a ref ``refs/ralph/dropped/<id>``, and its saved work one with the suffix
``-wip``. Both changes are in one transaction, and git makes them in this order: a kill in between leaves both
refs. The reflog of the new ref has the time. Snapshots of the id stay until the new ref expires.

Without ``--force``, a branch stays if work would be lost. This is saved work, and commits that the main
branch has neither as they are nor as patches. For a branch without own commits, it is the commits that no
other branch holds. The branch of an unfinished session is never deleted, nor one that is checked out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap import branches
from ralph_wrap.commands.drop.refs import DROPPED, RestoredBranch, delete, expire, restore
from ralph_wrap.commands.drop.safety import DropSafety, DropSelection
from ralph_wrap.errors import RalphError, RefusedError, UsageError
from ralph_wrap.state.project import repository_of
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.worktree.lock import repository_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralph_wrap.branches import Branch
    from ralph_wrap.state.project import Project


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

    """

    id: str | None
    branch: str
    tip: str
    saved: str | None
    dropped: bool
    lost: tuple[str, ...] = ()
    kept: str | None = None


def drop(project: Project, wanted: DropSelection, now: float) -> tuple[list[DroppedBranch], list[RalphError]]:
    """Delete branches and their saved work.

    Arguments:
        now: seconds since 1970.

    Returns:
        The result of each branch, and an error for each branch that stays.

    Raises:
        UsageError: these options exclude each other, or a name stands only for the saved work of a branch.
        NotFoundError: a name has no branch; nothing was deleted.
        RalphError: there is no repository.

    """
    if wanted.names and (wanted.merged or wanted.empty):
        raise UsageError("ids exclude --merged and --empty", "give one of them")
    if not wanted.names and not wanted.merged and not wanted.empty and wanted.older_than is None:
        raise UsageError("no branch is selected", "ralph-wrap drop ID…, or: ralph-wrap drop --merged")
    found = branches.read(project)
    if wanted.names:
        chosen = [*{one.name: one for one in (_named(found, name) for name in wanted.names)}.values()]
    else:
        chosen = [one for one in found if one.id is not None]
    judge = DropSafety(project, chosen, now)
    rows: list[DroppedBranch] = []
    failures: list[RalphError] = []
    going: list[tuple[Branch, tuple[str, ...]]] = []
    for one in chosen:
        if not judge.fits(one, wanted):
            continue
        error = judge.busy(one)
        if error is not None and not wanted.names:
            continue  # the user named no ids, so branches in use are left out without an error
        lost = judge.lost(one)
        if error is None and lost and not wanted.force:
            error = RefusedError(
                f"{one.name} kept, this would be lost: {'; '.join(lost)}",
                f"to see it: ralph-wrap diff --saved {one.label}; "
                f"to drop it: ralph-wrap drop --force {one.label}",
            )
        if error is None:
            going.append((one, lost))
        else:
            failures.append(error)
            rows.append(_row(one, lost, error))
    gone = _delete(project, [one for one, _ in going], judge, now) if going else {}
    for one, lost in going:
        rows.append(_row(one, lost, gone[one.name]))
        failures += filter(None, [gone[one.name]])
    return rows, failures


def _named(found: list[Branch], name: str) -> Branch:
    one = branches.named(found, name)
    if one.saved_name != one.name and name == one.saved_name:
        raise UsageError(
            f"{one.saved_name} can only be dropped with {one.name}",
            f"to drop both: ralph-wrap drop {one.label}",
        )
    return one


def _delete(
    project: Project, going: Sequence[Branch], judge: DropSafety, now: float
) -> dict[str, RalphError | None]:
    """Delete branches that are still not checked out; the repository lock keeps other processes from it."""
    try:
        with repository_lock(repository_of(project).common_dir):
            judge.look_again()
            late = {one.name: judge.busy(one) for one in going}
            return late | delete(project.git, [one for one in going if late[one.name] is None], now)
    except OSError as error:
        raise RalphError(f"cannot lock the repository: {error}; nothing was dropped") from error


def _row(branch: Branch, lost: tuple[str, ...], error: RalphError | None) -> DroppedBranch:
    kept = error.message if error else None
    return DroppedBranch(branch.id, branch.name, branch.tip, branch.saved_name, error is None, lost, kept)


__all__ = ["DROPPED", "DropSelection", "DroppedBranch", "RestoredBranch", "drop", "expire", "restore"]
