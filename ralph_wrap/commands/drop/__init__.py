"""Delete branches that are done with, so that they can be brought back for a while.

What is deleted gets a ref ``refs/ralph/dropped/<id>`` first, saved work ``refs/ralph/dropped/<id>-wip``, in
the same transaction, which git carries out in this order: a kill in between leaves both. The reflog of that
ref keeps the time. Snapshots of the id stay where they are until then, too.

What would be lost, and is refused unless forced: commits that the main branch has neither as they are nor as
patches, and saved work. Of a branch that is still where it started, commits that no other branch holds. A
branch of a session that is not finished, or one that is checked out, is never deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import branches
from ralph_wrap.commands.drop.refs import DROPPED, Restored, delete, expire, restore
from ralph_wrap.commands.drop.safety import Judge, Wanted
from ralph_wrap.errors import RalphError, RefusedError, UsageError
from ralph_wrap.state import project
from ralph_wrap.worktree.lock import repository_lock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralph_wrap.branches import Branch
    from ralph_wrap.state.project import Project


class Dropped(NamedTuple):
    """What became of one branch.

    Attributes:
        id: agent id that it was named by.
        branch: its name.
        tip: object id that it had.
        saved: the branch that held saved work, and went with it.
        dropped: it is gone.
        lost: what is on no other branch: the reason why it is still there, unless that was forced.
        kept: why it is still there.

    """

    id: str | None
    branch: str
    tip: str
    saved: str | None
    dropped: bool
    lost: tuple[str, ...] = ()
    kept: str | None = None


def drop(
    place: Project, environ: Mapping[str, str], wanted: Wanted, now: float
) -> tuple[list[Dropped], list[RalphError]]:
    """Delete branches and their saved work.

    Arguments:
        now: seconds since 1970.

    Returns:
        What became of each, and for each that is still there why.

    Raises:
        UsageError: these options do not go together, or a name stands for half of something.
        NotFoundError: there is no branch of a name; nothing was deleted.
        RalphError: there is no repository.

    """
    if wanted.names and (wanted.merged or wanted.empty):
        raise UsageError("ids and --merged or --empty are two ways to say which", "give one of them")
    if not wanted.names and not wanted.merged and not wanted.empty and wanted.older_than is None:
        raise UsageError("nothing says which branches are to go", "ralph-wrap drop ID… or --merged")
    found = branches.read(place, environ)
    if wanted.names:
        chosen = [*{one.name: one for one in (_named(found, name) for name in wanted.names)}.values()]
    else:
        chosen = [one for one in found if one.id is not None]
    judge = Judge(place, environ, chosen, now)
    rows: list[Dropped] = []
    failures: list[RalphError] = []
    going: list[tuple[Branch, tuple[str, ...]]] = []
    for one in chosen:
        if not judge.fits(one, wanted):
            continue
        error = judge.busy(one)
        if error is not None and not wanted.names:
            continue  # all of a kind are wanted: one that is worked on is not done with
        lost = judge.lost(one)
        if error is None and lost and not wanted.force:
            error = RefusedError(
                f"{one.name} kept, with it would go: {'; '.join(lost)}",
                f"ralph-wrap diff --saved {one.label}; ralph-wrap drop --force {one.label}",
            )
        if error is None:
            going.append((one, lost))
        else:
            failures.append(error)
            rows.append(_row(one, lost, error))
    gone = _delete(place, environ, [one for one, _ in going], judge, now) if going else {}
    for one, lost in going:
        rows.append(_row(one, lost, gone[one.name]))
        failures += filter(None, [gone[one.name]])
    return rows, failures


def _named(found: list[Branch], name: str) -> Branch:
    one = branches.named(found, name)
    if one.saved_name != one.name and name == one.saved_name:
        raise UsageError(
            f"{one.saved_name} does not go without {one.name}", f"both: ralph-wrap drop {one.label}"
        )
    return one


def _delete(
    place: Project, environ: Mapping[str, str], going: Sequence[Branch], judge: Judge, now: float
) -> dict[str, RalphError | None]:
    """Delete branches that no worktree has got since they were judged: none is made meanwhile."""
    try:
        with repository_lock(project.repository_of(place).common_dir):
            judge.look_again()
            late = {one.name: judge.busy(one) for one in going}
            return late | delete(place.git(environ), [one for one in going if late[one.name] is None], now)
    except OSError as error:
        raise RalphError(f"the repository cannot be locked: {error}; nothing was dropped") from error


def _row(one: Branch, lost: tuple[str, ...], error: RalphError | None) -> Dropped:
    kept = error.message if error else None
    return Dropped(one.id, one.name, one.tip, one.saved_name, error is None, lost, kept)


__all__ = ["DROPPED", "Dropped", "Restored", "Wanted", "drop", "expire", "restore"]
