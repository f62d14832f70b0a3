"""The refs of branches that are dropped and restored."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from ralph_wrap import branches
from ralph_wrap.branches import HEADS, WIP, Branch
from ralph_wrap.branches.dropped import DROPPED, DROPPED_ELSEWHERE, branch_of, dropped, dropped_ref
from ralph_wrap.branches.intake import BASES
from ralph_wrap.errors import ConflictError, GitError, NotFoundError, RalphError
from ralph_wrap.git import Git, list_refs
from ralph_wrap.git.read_back import other_tips, require_whole
from ralph_wrap.git.transaction import RefChange, change_refs, ref_times
from ralph_wrap.state.ids import agent_id_of, is_agent_id
from ralph_wrap.state.project import Project, own_registry, repository_of
from ralph_wrap.state.registry import Registry
from ralph_wrap.system import files
from ralph_wrap.system.document import DocumentFormat
from ralph_wrap.system.text import command, rename_command

SNAPSHOTS = "refs/ralph/snapshots/"
"""The refs of commits that no branch holds, by agent id."""

_REASON = "ralph-wrap: dropped"
_DUE = "expiring.json"  # when each ref was first found due
_FORMAT = DocumentFormat(version=1, largest=16 << 20, indent=1)
_SECOND_LOOK = 86400.0  # seconds after that, when it goes if it is still due


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


def _due_for_long(home: Registry, due: Mapping[str, str], wait: float, now: float) -> dict[str, str]:
    """Return the refs that were due already when an earlier command looked, and note the others.

    Arguments:
        home: the registry of the project, which has the note.
        due: object ids by ref.
        wait: seconds between the two looks.

    """
    path = home.directory / _DUE
    try:
        before = _FORMAT.read(path, lambda loaded: {**loaded["first_seen"]})
    except (OSError, ValueError):  # then these are the first looks
        before = {}
    seen = dict.fromkeys((f"{ref} {tip}" for ref, tip in due.items()), now)
    for name in seen.keys() & before.keys():
        first = before[name]
        if isinstance(first, (int, float)) and first <= now:
            seen[name] = first
    if seen != before:
        with contextlib.suppress(OSError):  # without the note, nothing expires
            home.prepare()
            files.replace(path, _FORMAT.encode({"first_seen": seen}))
    return {ref: tip for ref, tip in due.items() if now - seen[f"{ref} {tip}"] >= wait}


def expire(project: Project, keep: float, now: float) -> list[str]:
    """Delete the refs of branches that were dropped more than *keep* seconds ago, and return their names.

    A ref without a known time stays. A clock that is wrong for a moment deletes nothing: a ref goes only if
    an earlier command, at least a day before, has found it due as well.

    Arguments:
        keep: seconds; 0 keeps all refs for ever.
        now: seconds since 1970.

    Raises:
        GitError: a ref cannot be deleted.
        RalphError: there is no repository.

    """
    repository_of(project)
    git = project.git
    home = own_registry(project)
    refs = list_refs(git, DROPPED, DROPPED_ELSEWHERE)
    if not keep or not refs:
        return []
    times = ref_times(git, refs)
    due = {ref: tip for ref, tip in refs.items() if now - times.get(ref, now) > keep}
    old = _due_for_long(home, due, min(keep, _SECOND_LOOK), now)
    if not old:
        return []
    sessions = branches.recorded(project)
    names = {branch_of(ref) for ref in old}
    agent_ids = {name.removeprefix("ralph/").removesuffix(WIP) for name in names if name.startswith("ralph/")}
    agent_ids |= {session.id for session in sessions if session.branch in names}
    # These ids are in use: snapshots may belong to a branch that can still be restored, or to a session.
    in_use = {branch_of(ref).removeprefix("ralph/").removesuffix(WIP) for ref in refs.keys() - old.keys()}
    in_use |= {session.id for session in sessions if session.verdict}
    for branch in branches.read(project):
        in_use |= {*filter(None, (branch.id, *map(agent_id_of, branch.sessions)))}
    for agent_id in filter(is_agent_id, agent_ids - in_use):
        old |= list_refs(git, f"{SNAPSHOTS}{agent_id}/", BASES + agent_id)
    change_refs(git, [RefChange(ref, tip, None) for ref, tip in old.items()], "ralph-wrap: expired", int(now))
    return sorted(names)


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
        return NotFoundError(
            f"{name} was not dropped, or has expired",
            "to list what can be restored: ralph-wrap restore",
        )
