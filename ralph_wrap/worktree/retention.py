"""What old refs go, when, and by what proof.

**Why this is safe.** Nothing here looks at a file of a user or an agent, and no branch goes. This goes:

1. *A dropped branch*: its ref below ``refs/ralph/dropped``, ``keep_dropped`` after the drop. The reflog of
   the ref has the time; a ref without one stays. The snapshots and the base of its id go with it, if no other
   branch, no session and no worktree has the id.
2. *Snapshots without a branch*: the user has deleted ``ralph/<id>`` and ``ralph/<id>-wip`` with plain git.
   The newest one becomes a dropped branch, ``ralph/<id>-wip``. So ``restore`` brings it back, and the rest is
   as in 1. None goes while ``commit-<n>`` or ``submodule-<n>`` of the id is a commit that no branch, tag or
   remote branch contains, and none while the first parent of one is in none of these and not in the newest
   one: that commit was at HEAD, and the agent has reset it away.

The files of a session go, too (``old_sessions``), and snapshots that newer ones of the same session have
replaced (``thinning``). Each of these modules says why that is safe.

A clock that is wrong for a moment deletes nothing: a dropped branch goes only if an earlier command, at least
a day before, has found it due as well. Unknown is a reason to stay: what cannot be read, a git that fails.
Refs change by transactions that name their old commits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ralph_wrap import branches
from ralph_wrap.branches import HEADS, WIP
from ralph_wrap.branches.dropped import DROPPED, DROPPED_ELSEWHERE, branch_of
from ralph_wrap.branches.intake import BASES
from ralph_wrap.branches.sessions import RecordedSession
from ralph_wrap.errors import GitError
from ralph_wrap.git import commits_without, existing_commits, list_refs
from ralph_wrap.git.transaction import RefChange, change_refs, ref_times
from ralph_wrap.state.ids import agent_id_of, is_agent_id
from ralph_wrap.state.project import (
    CLONES,
    WORKTREES,
    Project,
    objects_of,
    own_registry,
    registries,
    repository_of,
)
from ralph_wrap.state.registry import Registry
from ralph_wrap.system import files
from ralph_wrap.system.document import DocumentFormat
from ralph_wrap.worktree.save.commits import lone_parents

SNAPSHOTS = "refs/ralph/snapshots/"
"""The refs of commits that no branch holds, by agent id."""

SECOND_LOOK = 86400.0
"""Seconds after the first look that finds something due, when it goes if it is still due."""

_DUE = "expiring.json"  # when each dropped ref was first found due
_FORMAT = DocumentFormat(version=1, largest=16 << 20, indent=1)


class LooseSnapshots(NamedTuple):
    """The snapshots of an id that has no branch any more.

    Attributes:
        id: agent id.
        ref: the ref that makes the newest one restorable.
        number: how many there are.
        problem: why they stay as they are; empty if they do not.

    """

    id: str
    ref: str
    number: int
    problem: str = ""


def first_looks(path: Path, due: Collection[str], now: float, *, dry_run: bool) -> dict[str, float]:
    """Return when each name was first found due, and note it.

    Arguments:
        path: of the note.
        due: names of what is due now; another name is forgotten.
        now: seconds since 1970.
        dry_run: write nothing.

    """
    try:
        before = _FORMAT.read(path, lambda loaded: {**loaded["first_seen"]})
    except (OSError, ValueError):  # then these are the first looks
        before = {}
    seen = dict.fromkeys(due, now)
    for name in seen.keys() & before.keys():
        first = before[name]
        if isinstance(first, (int, float)) and first <= now:
            seen[name] = first
    if seen != before and not dry_run:
        with contextlib.suppress(OSError):  # without the note, nothing goes
            Registry(path.parent).prepare()
            files.replace(path, _FORMAT.encode({"first_seen": seen}))
    return seen


# Dropped branches


def expire(project: Project, keep: float, now: float, *, dry_run: bool = False) -> list[str]:
    """Delete the refs of branches that were dropped more than *keep* seconds ago, and return their names.

    Arguments:
        keep: seconds; 0 keeps all refs for ever.
        now: seconds since 1970.
        dry_run: delete nothing.

    Raises:
        GitError: a ref cannot be deleted.
        RalphError: there is no repository.

    """
    repository_of(project)
    git = project.git
    path = own_registry(project).directory / _DUE
    refs = list_refs(git, DROPPED, DROPPED_ELSEWHERE)
    if not keep or not refs:
        return []
    times = ref_times(git, refs)
    due = {ref: tip for ref, tip in refs.items() if now - times.get(ref, now) > keep}
    looks = first_looks(path, [f"{ref} {tip}" for ref, tip in due.items()], now, dry_run=dry_run)
    wait = min(keep, SECOND_LOOK)
    old = {ref: tip for ref, tip in due.items() if now - looks[f"{ref} {tip}"] >= wait}
    if old and not dry_run:
        _delete(project, old, refs, "ralph-wrap: expired", now)
    return sorted({branch_of(ref) for ref in old})


def forget(project: Project, names: Collection[str], now: float) -> list[str]:
    """Delete the refs of dropped branches at once, and return the names of the branches.

    Arguments:
        names: of the branches, as :func:`branch_of` returns them; saved work is one of its own.
        now: seconds since 1970.

    Raises:
        GitError: a ref cannot be deleted.
        RalphError: there is no repository.

    """
    repository_of(project)
    refs = list_refs(project.git, DROPPED, DROPPED_ELSEWHERE)
    old = {ref: tip for ref, tip in refs.items() if branch_of(ref) in names}
    if old:
        _delete(project, old, refs, "ralph-wrap: dropped for ever", now)
    return sorted({branch_of(ref) for ref in old})


def _delete(
    project: Project, old: Mapping[str, str], refs: Mapping[str, str], reason: str, now: float
) -> None:
    """Delete the refs of dropped branches, and those of their ids that nothing uses.

    Arguments:
        old: those to delete.
        refs: all of them.

    """
    sessions = branches.recorded(project)
    names = {branch_of(ref) for ref in old}
    agent_ids = {name.removeprefix("ralph/").removesuffix(WIP) for name in names if name.startswith("ralph/")}
    agent_ids |= {session.id for session in sessions if session.branch in names}
    in_use = _ids_in_use(project, sessions)
    # Their snapshots may belong to a branch that can still be restored.
    in_use |= {branch_of(ref).removeprefix("ralph/").removesuffix(WIP) for ref in refs.keys() - old.keys()}
    changes = {**old}
    for agent_id in filter(is_agent_id, agent_ids - in_use):
        changes |= list_refs(project.git, f"{SNAPSHOTS}{agent_id}/", BASES + agent_id)
    change_refs(project.git, [RefChange(ref, tip, None) for ref, tip in changes.items()], reason, int(now))


def _ids_in_use(project: Project, sessions: Iterable[RecordedSession]) -> set[str]:
    """Return the agent ids of branches, of sessions that are not finished, and of worktrees.

    Raises:
        OSError: a directory cannot be read.

    """
    in_use = {session.id for session in sessions if session.verdict}
    for branch in branches.read(project):
        in_use |= {*filter(None, (branch.id, *map(agent_id_of, branch.sessions)))}
    registrations = repository_of(project).common_dir / "worktrees"
    for directory in (registrations, project.root / WORKTREES, project.root / CLONES):
        in_use |= {name.partition(".")[0].rpartition("-")[2] for name in names_in(directory)}
    return in_use


def names_in(directory: Path) -> list[str]:
    """Return the names in a directory; none if there is no such directory.

    Raises:
        OSError: it cannot be read.

    """
    try:
        return [path.name for path in directory.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


# Snapshots whose branch the user has deleted with plain git


def drop_loose_snapshots(project: Project, now: float, *, dry_run: bool = False) -> list[LooseSnapshots]:
    """Make the newest snapshot of each id that has no branch any more a dropped branch.

    Arguments:
        now: seconds since 1970.
        dry_run: change nothing.

    Raises:
        GitError: git failed.
        OSError: what uses the ids is not known.
        RalphError: there is no repository.

    """
    git = project.git
    repository_of(project)
    if not (snapshots := list_refs(git, SNAPSHOTS)):
        return []
    by_id: dict[str, dict[str, str]] = {}
    for ref, tip in snapshots.items():
        by_id.setdefault(ref.removeprefix(SNAPSHOTS).partition("/")[0], {})[ref] = tip
    for home in registries(project):
        names_in(home.agents)  # a directory that cannot be read would look like one without sessions
    sessions = branches.recorded(project)
    dropped = {branch_of(ref) for ref in list_refs(git, DROPPED, DROPPED_ELSEWHERE)}
    in_use = _ids_in_use(project, sessions)
    in_use |= {name.removeprefix("ralph/").removesuffix(WIP) for name in dropped}
    in_use |= {session.id for session in sessions if session.branch in dropped}
    found, changes = list[LooseSnapshots](), list[RefChange]()
    for agent_id in sorted(filter(is_agent_id, by_id.keys() - in_use)):
        refs = by_id[agent_id]
        newest = max(refs, key=iteration_of)
        if lone := _only_copies(project, refs, refs[newest]):
            found.append(LooseSnapshots(agent_id, "", len(refs), f"no branch has {lone}"))
            continue
        ref = f"{DROPPED}{agent_id}" + WIP * (iteration_of(newest) > 0)
        changes += [RefChange(newest, refs[newest], refs[newest]), RefChange(ref, None, refs[newest])]
        found.append(LooseSnapshots(agent_id, ref, len(refs)))
    if changes and not dry_run:
        change_refs(git, changes, "ralph-wrap: its branch is gone", int(now))
    return found


def iteration_of(ref: str) -> int:
    """Return the number of the iteration of a snapshot; 0 for another commit that no branch held."""
    number = ref.rpartition("/")[2]
    return int(number) if number.isdecimal() else 0


def _only_copies(project: Project, refs: Mapping[str, str], newest: str) -> str:
    """Return what may have no copy but below the refs of an id; empty if there is nothing.

    It is one of the other commits, or the first parent of a snapshot. No branch below ``ralph/`` counts: the
    next drop may delete it.

    Arguments:
        refs: of the id.
        newest: the snapshot that becomes a dropped branch, which holds its own parents.

    """
    holding = list_refs(project.git, HEADS, "refs/tags/", "refs/remotes/")
    tips = {tip for ref, tip in holding.items() if not ref.startswith(branches.OURS)}
    with objects_of(project) as objects:
        known, whole = existing_commits(objects, tips), {*existing_commits(objects, refs.values())}
        others = {tip for ref, tip in refs.items() if not iteration_of(ref)} & whole
        lacking = {commit.id for commit in commits_without(objects, others, *known)}
        for ref, tip in sorted(refs.items()):
            if tip not in whole or tip in lacking:
                return f"the commits of {ref}"
        snapshots = [tip for ref, tip in refs.items() if iteration_of(ref)]
        try:
            lone = lone_parents(objects, snapshots, [*known, newest])
        except GitError:  # a commit is missing
            return "all commits of its snapshots"
    return f"commit {lone[0]}" if lone else ""
