"""The refs of branches that are dropped and restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap import branches
from ralph_wrap.branches import HEADS, WIP, Branch
from ralph_wrap.errors import ConflictError, GitError, NotFoundError, RalphError
from ralph_wrap.git import list_refs
from ralph_wrap.git.transaction import RefChange, change_refs, ref_times
from ralph_wrap.state import inventory
from ralph_wrap.state.ids import is_agent_id
from ralph_wrap.state.project import repository_of
from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ralph_wrap.git import Git
    from ralph_wrap.state.project import Project

DROPPED = "refs/ralph/dropped/"
"""The refs of dropped branches; the part of the name after ``ralph/`` follows."""

SNAPSHOTS = "refs/ralph/snapshots/"
"""The refs of commits that no branch holds, by agent id."""

_REASON = "ralph-wrap: dropped"


class RestoredBranch(NamedTuple):
    """A restored branch: id, name, tip, and branch of saved work; ``None`` for a missing part."""

    id: str | None
    branch: str | None
    tip: str | None
    saved: str | None


def delete(git: Git, wanted: Iterable[Branch], now: float) -> dict[str, RalphError | None]:
    """Delete branches, in one transaction if possible, and return an error for each branch that stays.

    Arguments:
        now: seconds since 1970.

    """
    dropped = list_refs(git, DROPPED)
    changes: dict[str, list[RefChange]] = {}
    problems: dict[str, RalphError | None] = {}
    for branch in wanted:
        try:
            changes[branch.name] = _changes_to_drop(branch, dropped)
            _forget(git, branch, dropped, now)
            problems[branch.name] = None
        except ConflictError as error:
            problems[branch.name] = error
        except GitError as error:
            del changes[branch.name]
            problems[branch.name] = ConflictError(
                f"{branch.name} cannot be dropped: {error.message}", "try again"
            )
    try:
        change_refs(
            git,
            [ref_change for branch_changes in changes.values() for ref_change in branch_changes],
            _REASON,
            int(now),
        )
    except GitError:  # another process has moved one, for example: the others can still be deleted
        for name, branch_changes in changes.items():
            try:
                change_refs(git, branch_changes, _REASON, int(now))
            except GitError as error:
                problems[name] = ConflictError(f"{name} cannot be dropped: {error.message}", "try again")
    return problems


def _changes_to_drop(branch: Branch, dropped: Mapping[str, str]) -> list[RefChange]:
    """Return the changes of refs that drop a branch and its saved work.

    Raises:
        ConflictError: another branch of this name was dropped before, and can still be restored.

    """
    changes: list[RefChange] = []
    for name, tip in ((branch.name, branch.tip), (branch.saved_name, branch.saved)):
        if name is None or tip is None or (name == branch.name and changes):
            continue
        ref = DROPPED + name.removeprefix("ralph/")
        if dropped.get(ref, tip) != tip:
            raise ConflictError(
                f"another {name} was dropped before, at {dropped[ref][:12]}, and can still be restored",
                f"to keep both: git branch NAME {dropped[ref][:12]}"
                f" && git update-ref -d {ref} {dropped[ref][:12]}",
            )
        changes += [RefChange(ref, None, tip), RefChange(HEADS + name, tip, None)]
    return changes


def _forget(git: Git, branch: Branch, dropped: Mapping[str, str], now: float) -> None:
    """Delete the ref of an earlier drop of the same tip, so that its time counts from now on.

    Raises:
        GitError: the branch has moved meanwhile; nothing is deleted.

    """
    old = [
        change
        for name, tip in {branch.name: branch.tip, branch.saved_name: branch.saved}.items()
        if name and tip and (ref := DROPPED + name.removeprefix("ralph/")) in dropped
        for change in (RefChange(HEADS + name, tip, tip), RefChange(ref, tip, None))
    ]
    if old:
        change_refs(git, old, _REASON, int(now))


def expire(project: Project, keep: float, now: float) -> list[str]:
    """Delete the refs of branches that were dropped more than *keep* seconds ago, and return their names.

    A ref without a known time stays.

    Arguments:
        keep: seconds; 0 keeps all refs for ever.
        now: seconds since 1970.

    Raises:
        GitError: a ref cannot be deleted.
        RalphError: there is no repository.

    """
    repository_of(project)
    git = project.git
    refs = list_refs(git, DROPPED)
    if not keep or not refs:
        return []
    times = ref_times(git, refs)
    old = {ref: tip for ref, tip in refs.items() if now - times.get(ref, now) > keep}
    if not old:
        return []
    stems = {ref.removeprefix(DROPPED).removesuffix(WIP) for ref in old}
    in_use = {ref.removeprefix(DROPPED).removesuffix(WIP) for ref in refs.keys() - old.keys()}
    heads = list_refs(git, branches.OURS)
    in_use |= {
        session.id for session in inventory.unfinished(project)
    }  # snapshots may belong to these sessions
    for stem in stems - in_use:
        names = {f"{branches.OURS}{stem}", f"{branches.OURS}{stem}{WIP}"}
        if is_agent_id(stem) and not names & heads.keys():
            old |= list_refs(git, f"{SNAPSHOTS}{stem}/")
    change_refs(git, [RefChange(ref, tip, None) for ref, tip in old.items()], "ralph-wrap: expired", int(now))
    return sorted(f"ralph/{ref.removeprefix(DROPPED)}" for ref in old if ref.startswith(DROPPED))


def restore(project: Project, name: str, now: float) -> RestoredBranch:
    """Restore a dropped branch, and its saved work.

    Arguments:
        name: the id or the name of the dropped branch.
        now: seconds since 1970.

    Raises:
        NotFoundError: no branch of this name was dropped, or it has expired.
        ConflictError: a branch of this name exists.
        RalphError: there is no repository, or git failed.

    """
    repository_of(project)
    git = project.git
    stem = name.removeprefix(HEADS).removeprefix("ralph/")
    refs = list_refs(git, DROPPED, branches.OURS)
    wanted = [stem, *([f"{stem}{WIP}"] if is_agent_id(stem) else [])]
    dropped = {
        short_name: refs[DROPPED + short_name] for short_name in wanted if DROPPED + short_name in refs
    }
    for short_name in dict.fromkeys([stem, *dropped]):
        if branches.OURS + short_name in refs:
            raise ConflictError(
                f"branch ralph/{short_name} already exists",
                f"to rename it: git branch -m ralph/{short_name} NAME",
            )
    if not dropped:
        raise NotFoundError(
            f"ralph/{stem} was not dropped, or has expired",
            f"to list dropped branches: git for-each-ref {DROPPED}",
        )
    changes = [
        change
        for short_name, tip in dropped.items()
        for change in (
            RefChange(branches.OURS + short_name, None, tip),
            RefChange(DROPPED + short_name, tip, None),
        )
    ]
    try:
        change_refs(git, changes, "ralph-wrap: restored", int(now))
    except GitError as error:
        raise ConflictError(f"cannot restore ralph/{stem}: {error.message}", "try again") from None
    saved = f"{stem}{WIP}"
    return RestoredBranch(
        id=stem if is_agent_id(stem) else None,
        branch=f"ralph/{stem}" if stem in dropped else None,
        tip=dropped.get(stem),
        saved=f"ralph/{saved}" if saved in dropped else None,
    )
