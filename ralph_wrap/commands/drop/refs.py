"""The refs of branches that are dropped and restored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from ralph_wrap import branches
from ralph_wrap.branches import HEADS, WIP, Branch
from ralph_wrap.branches.dropped import DROPPED, DROPPED_ELSEWHERE, dropped, dropped_ref, gone_for_ever
from ralph_wrap.errors import ConflictError, GitError, NotFoundError, RalphError
from ralph_wrap.git import Git, list_refs
from ralph_wrap.git.read_back import other_tips, require_whole
from ralph_wrap.git.transaction import RefChange, change_refs, ref_times
from ralph_wrap.state.project import Project
from ralph_wrap.system.text import command, rename_command

_REASON = "ralph-wrap: dropped"


class RestoredBranch(NamedTuple):
    """A restored branch.

    Attributes:
        id: the agent id in its name.
        branch: its name; ``None`` if only its saved work was dropped.
        tip: its object id.
        saved: the branch of its saved work.
        title: what people call its session; empty if that is not known.

    """

    id: str | None
    branch: str | None
    tip: str | None
    saved: str | None
    title: str = ""


class RestorableBranch(NamedTuple):
    """A dropped branch that can be restored.

    Attributes:
        id: the agent id in its name.
        branch: its name; ``None`` if only its saved work was dropped.
        tip: its object id.
        saved: the branch of its saved work.
        title: what people call its session; empty if that is not known.
        dropped: when it was dropped: UTC, ISO 8601; ``None`` if that is not known.
        expires: when the next ``drop`` deletes it for ever: UTC, ISO 8601; ``None`` for never.

    """

    id: str | None
    branch: str | None
    tip: str | None
    saved: str | None
    title: str
    dropped: str | None
    expires: str | None


def delete(git: Git, wanted: Iterable[Branch], now: float) -> dict[str, RalphError | None]:
    """Delete branches, in one transaction if possible, and return an error for each branch that stays.

    Arguments:
        now: seconds since 1970.

    """
    earlier = list_refs(git, DROPPED, DROPPED_ELSEWHERE)
    changes: dict[str, list[RefChange]] = {}
    problems: dict[str, RalphError | None] = {}
    for branch in wanted:
        try:
            changes[branch.name] = _changes_to_drop(branch, earlier)
            _forget(git, branch, earlier, now)
            problems[branch.name] = None
        except ConflictError as error:
            problems[branch.name] = error
        except GitError as error:
            del changes[branch.name]
            problems[branch.name] = ConflictError(
                f"{branch.name} cannot be dropped: {error.message}", error.hint or "try again"
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
                problems[name] = ConflictError(
                    f"{name} cannot be dropped: {error.message}", error.hint or "try again"
                )
    return problems


def _changes_to_drop(branch: Branch, earlier: Mapping[str, str]) -> list[RefChange]:
    """Return the changes of refs that drop a branch and its saved work.

    Raises:
        ConflictError: another branch of this name was dropped before, and can still be restored.

    """
    changes: list[RefChange] = []
    for name, tip in ((branch.name, branch.tip), (branch.saved_name, branch.saved)):
        if name is None or tip is None or (name == branch.name and changes):
            continue
        ref = dropped_ref(name)
        if earlier.get(ref, tip) != tip:
            raise ConflictError(
                f"another {name} was dropped before, at {earlier[ref][:12]}, and can still be restored",
                f"to keep both: git branch NAME {earlier[ref][:12]}"
                f" && {command('git', 'update-ref', '-d', ref, earlier[ref][:12])}",
            )
        changes += [RefChange(ref, None, tip), RefChange(HEADS + name, tip, None)]
    return changes


def _forget(git: Git, branch: Branch, earlier: Mapping[str, str], now: float) -> None:
    """Delete the ref of an earlier drop of the same tip, so that its time counts from now on.

    Raises:
        GitError: the branch has moved meanwhile; nothing is deleted.

    """
    old = [
        change
        for name, tip in {branch.name: branch.tip, branch.saved_name: branch.saved}.items()
        if name and tip and (ref := dropped_ref(name)) in earlier
        for change in (RefChange(HEADS + name, tip, tip), RefChange(ref, tip, None))
    ]
    if old:
        change_refs(git, old, _REASON, int(now))


def restorable(project: Project, keep: float) -> list[RestorableBranch]:
    """Return what :func:`restore` can bring back, the last drop first.

    Arguments:
        keep: how many seconds a dropped branch is kept; 0 keeps it for ever.

    Raises:
        RalphError: there is no repository.

    """
    found = dropped(project)
    times = ref_times(project.git, [dropped_ref(branch.name) for branch in found])
    rows = []
    for branch in sorted(found, key=lambda branch: times.get(dropped_ref(branch.name), 0), reverse=True):
        time = times.get(dropped_ref(branch.name))
        rows.append(
            RestorableBranch(
                id=branch.id,
                branch=None if branch.only_saved else branch.name,
                tip=None if branch.only_saved else branch.tip,
                saved=branch.saved_name,
                title=branch.title,
                dropped=_iso(time) if time else None,
                expires=_iso(time + keep) if time and keep else None,
            )
        )
    return rows


def _iso(time: float) -> str | None:
    try:
        return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # a reflog that an agent wrote, or "keep_dropped" of an age
        return None


def restore(project: Project, name: str, now: float) -> RestoredBranch:
    """Restore a dropped branch, and its saved work.

    Arguments:
        name: an id, the name, or the title of the dropped branch.
        now: seconds since 1970.

    Raises:
        UsageError: the title of several dropped branches fits.
        NotFoundError: no branch of this name was dropped, or it has expired.
        ConflictError: a branch of this name exists.
        DamageError: an object of it is damaged or missing; it can still be restored.
        RalphError: there is no repository, or git failed.

    """
    git = project.git
    try:
        branch = branches.named(dropped(project), name)
    except NotFoundError:
        raise _not_dropped(project, name) from None
    parts = {branch.name: branch.tip, branch.saved_name: branch.saved}
    wanted = {short: tip for short, tip in parts.items() if short and tip}
    whole = branch.name.removesuffix(WIP) if branch.only_saved else branch.name
    heads = list_refs(git, *(HEADS + short for short in {whole, *wanted}))
    for short in (whole, *wanted):
        if HEADS + short in heads:
            raise _exists(short)
    require_whole(git, [*wanted.values()], other_tips(git))
    changes = [
        change
        for short, tip in wanted.items()
        for change in (
            RefChange(HEADS + short, None, tip),
            RefChange(dropped_ref(short), tip, None),
        )
    ]
    try:
        change_refs(git, changes, "ralph-wrap: restored", int(now))
    except GitError as error:
        raise ConflictError(
            f"cannot restore {branch.name}: {error.message}", error.hint or "try again"
        ) from None
    return RestoredBranch(
        id=branch.id,
        branch=None if branch.only_saved else branch.name,
        tip=None if branch.only_saved else branch.tip,
        saved=branch.saved_name,
        title=branch.title,
    )


def _exists(name: str) -> ConflictError:
    return ConflictError(f"branch {name} already exists", f"to rename it: {rename_command(name)}")


def _not_dropped(project: Project, name: str) -> RalphError:
    """Return the error for a name that no dropped branch has."""
    try:
        branch = branches.named(branches.read(project), name)
        return ConflictError(
            f"branch {branch.name} is here: it was not dropped",
            f"to see what it changes: {command('ralph-wrap', 'diff', branch.label)}",
        )
    except NotFoundError:
        return gone_for_ever(project, name) or NotFoundError(
            f"{name} was not dropped, or has expired",
            "to list what can be restored: ralph-wrap restore",
        )
