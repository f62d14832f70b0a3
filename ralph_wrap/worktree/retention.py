"""What old files and refs go, when, and by what proof.

**Why this is safe.** Nothing here looks at a file of a user or an agent, and no branch goes. This goes:

1. *A dropped branch*: its ref below ``refs/ralph/dropped``, ``keep_dropped`` after the drop. The reflog of
   the ref has the time; a ref without one stays. The snapshots and the base of its id go with it, if no other
   branch, no session and no worktree has the id.
2. *Snapshots without a branch*: the user has deleted ``ralph/<id>`` and ``ralph/<id>-wip`` with plain git.
   The newest one becomes a dropped branch, ``ralph/<id>-wip``. So ``restore`` brings it back, and the rest is
   as in 1. None goes while ``commit-<n>`` or ``submodule-<n>`` of the id is a commit that no branch, tag or
   remote branch contains, and none while the first parent of one is in none of these and not in the newest
   one: that commit was at HEAD, and the agent has reset it away.
3. *The files of a session*, ``keep_sessions`` after its end, and the snapshots of its iterations. All of this
   must hold:

   - Its record is readable, says *finished*, and is in the directory of its own name. Neither ``agents`` nor
     any lock knows the session, nor does a process of its agent hold ``agent.lock``.
   - There is no worktree, clone, registration, bundle, replica or save of it.
   - Each of its branches that exists, also ``ralph/<id>-wip``, is contained in the main branch: commit by
     commit, not by its patches. A branch with any other commit keeps everything of its session.
   - Nothing of its id can be restored, and none of its snapshots is ``commit-<n>`` or ``submodule-<n>``.
   - The branches of the session contain the first parent of each of its snapshots. One that they do not
     contain may have no other copy: it gets a ref ``commit-<n>``, which keeps the session.
   - If there are snapshots of its id, each session of this id is due, and each report says that it ended in
     order and kept no worktree: then the save at its end is newer than each of them.
   - If it belongs to a batch, that has noted that the task is done.

Snapshots that newer ones of the same session have replaced go earlier; :mod:`ralph_wrap.worktree.thinning`
says why that is safe.

The end of a session is the newest time that says so: of any of its files, or in its report. So an agent, or a
copy of the project, can make it later and not earlier. A clock that is wrong for a moment deletes nothing:
1 and 3 go only if an earlier command, at least a day before, has found them due as well. Unknown is a reason
to stay: what cannot be read, a lock that cannot be checked, a git that fails.

Refs change by transactions that name their old commits, and those of the branches that are the proof. The
record of a session goes last: after a kill in between, the next command finds what is left.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap import branches
from ralph_wrap.branches import HEADS, WIP
from ralph_wrap.branches.dropped import DROPPED, DROPPED_ELSEWHERE, branch_of
from ralph_wrap.branches.intake import BASES
from ralph_wrap.branches.sessions import RecordedSession
from ralph_wrap.errors import GitError, NotARepositoryError
from ralph_wrap.git import Git, commits_without, existing_commits, list_refs
from ralph_wrap.git.quarantine import SUBMODULES, owners
from ralph_wrap.git.transaction import RefChange, change_refs, ref_times
from ralph_wrap.state import report
from ralph_wrap.state.ids import agent_id_of, is_agent_id, started
from ralph_wrap.state.project import (
    CLONES,
    WORKTREES,
    Project,
    objects_of,
    own_registry,
    registries,
    repository_of,
)
from ralph_wrap.state.record import SessionRecord, read_record
from ralph_wrap.state.registry import Registry
from ralph_wrap.state.report import SessionReport
from ralph_wrap.system import files
from ralph_wrap.system.document import DocumentFormat
from ralph_wrap.worktree.save.commits import lone_parents, make_snapshots

SNAPSHOTS = "refs/ralph/snapshots/"
"""The refs of commits that no branch holds, by agent id."""

SECOND_LOOK = 86400.0
"""Seconds after the first look that finds something due, when it goes if it is still due."""

_DUE = "expiring.json"  # when each dropped ref was first found due
_DUE_SESSIONS = "expiring-sessions.json"  # the same for the files of sessions
_FORMAT = DocumentFormat(version=1, largest=16 << 20, indent=1)
_BATCH = DocumentFormat(version=1, largest=64 << 20)


class OldSession(NamedTuple):
    """A finished session whose files are due.

    Attributes:
        id: agent id.
        session: session id.
        title: what people call it; empty if that is not known.
        ended: the newest time that says when it ended, in seconds since 1970.
        size: of its files, in bytes.
        goes: when its files may go, in seconds since 1970; ``None`` if they may go now.

    """

    id: str
    session: str
    title: str
    ended: float
    size: int
    goes: float | None


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


def _first_looks(path: Path, due: Collection[str], now: float, *, dry_run: bool) -> dict[str, float]:
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
    looks = _first_looks(path, [f"{ref} {tip}" for ref, tip in due.items()], now, dry_run=dry_run)
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
        in_use |= {name.partition(".")[0].rpartition("-")[2] for name in _names_in(directory)}
    return in_use


def _names_in(directory: Path) -> list[str]:
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
        _names_in(home.agents)  # a directory that cannot be read would look like one without sessions
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


# The files of sessions


def clean_sessions(project: Project, keep: float, now: float, *, dry_run: bool = False) -> list[OldSession]:
    """Delete the files of sessions that ended more than *keep* seconds ago, and return what is due.

    Arguments:
        keep: seconds; 0 keeps all files for ever.
        now: seconds since 1970.
        dry_run: delete nothing.

    Raises:
        GitError: git failed.
        OSError: a lock cannot be taken, or a directory cannot be read.
        RalphError: one of our directories is a symlink, or the repository cannot be used.

    """
    if project.repository is None and not isinstance(project.obstacle, NotARepositoryError):
        repository_of(project)  # raises: its refs cannot be read
    path = own_registry(project).directory / _DUE_SESSIONS
    old = [*_ended_before(project, now - keep)] if keep else []
    if not old and not path.exists():
        return []
    needs = _Needs(project, old)
    due = needs.without_lone_commits([found for found in old if needs.allow(found)], dry_run=dry_run)
    looks = _first_looks(path, [found.record.session for found in due], now, dry_run=dry_run)
    wait = min(keep, SECOND_LOOK)
    rows = []
    for found in due:
        goes, record = looks[found.record.session] + wait, found.record
        size = sum(file.lstat().st_size for file in files.files_below(found.directory))
        rows.append(
            OldSession(
                record.id, record.session, record.title, found.ended, size, goes if goes > now else None
            )
        )
    may_go = {row.session for row in rows if row.goes is None}
    if not dry_run:
        needs.delete_snapshots([found for found in due if found.record.session in may_go], now)
        for found in due:
            if found.record.session in may_go:
                _remove_files(found.directory)
    return rows


class _EndedSession(NamedTuple):
    home: Registry
    directory: Path
    record: SessionRecord
    ended: float


def _ended_before(project: Project, limit: float) -> Iterator[_EndedSession]:
    """Yield the finished sessions that ended before a time, in seconds since 1970."""
    for home in registries(project):
        if home.sessions.is_symlink():
            continue
        for path in home.finished_paths():
            directory = path.parent
            if directory.is_symlink() or (ended := _last_change(directory)) >= limit:
                continue
            record = read_record(path)
            if not isinstance(record, SessionRecord) or record.session != directory.name:
                continue
            ended = max(ended, started(record.session).timestamp(), _reported_end(directory))
            if record.state == "finished" and ended < limit:
                yield _EndedSession(home, directory, record, ended)


def _last_change(directory: Path) -> float:
    """Return when a file in a directory was last changed; the far future if that is not known."""
    try:
        with os.scandir(directory) as entries:
            return max((entry.stat(follow_symlinks=False).st_mtime for entry in entries), default=0.0)
    except OSError:
        return float("inf")


def _reported_end(directory: Path) -> float:
    found = report.read(directory / "report.json")
    if not isinstance(found, SessionReport):
        return 0.0
    try:
        return datetime.fromisoformat(str(found.ended)).timestamp()
    except (ValueError, OverflowError, OSError):  # an agent may have changed the report
        return 0.0


class _Needs:
    """What the files of old sessions are still needed for.

    Arguments:
        old: the sessions.

    Raises:
        GitError: git failed.
        OSError: a directory cannot be read.

    """

    def __init__(self, project: Project, old: Collection[_EndedSession]) -> None:
        self._project = project
        self._heads: dict[str, str] = {}
        self._dropped: set[str] = set()
        self._snapshots: dict[str, dict[str, str]] = {}
        self._landed: set[str] = set()
        self._settled: set[str] = set()  # ids whose every session is old, and has ended in order
        self._saves: set[str] = set()
        self._homes = [*registries(project)]
        for home in self._homes:
            _names_in(home.agents)
        self._open_tasks = _open_tasks(self._homes) if any(found.record.task for found in old) else set[str]()
        if project.repository is None or not old:
            return
        git = project.git
        heads = list_refs(git, HEADS)
        self._heads = {ref.removeprefix(HEADS): tip for ref, tip in heads.items()}
        self._dropped = {branch_of(ref) for ref in list_refs(git, DROPPED, DROPPED_ELSEWHERE)}
        for ref, tip in list_refs(git, SNAPSHOTS).items():
            self._snapshots.setdefault(ref.removeprefix(SNAPSHOTS).partition("/")[0], {})[ref] = tip
        self._saves = {
            owner.partition(SUBMODULES)[0] for owner in owners(project.repository.common_dir / "objects")
        }
        self._settled = self._settled_ids(old)
        self._landed = _landed(project, {tip for found in old for tip in self._tips(found.record)})

    def _tips(self, record: SessionRecord) -> set[str]:
        """Return the commits of the branches of a session."""
        return {self._heads[name] for name in _names_of(record) & self._heads.keys()}

    def allow(self, found: _EndedSession) -> bool:
        """Return whether nothing needs the files of a session."""
        record = found.record
        names = _names_of(record)
        if self._project.repository is None and record.branch is not None:
            return False
        existing = self._tips(record)
        snapshots = self._snapshots.get(record.id, {})
        return (
            not self._is_in_use(found)
            and existing <= self._landed
            and not names & self._dropped
            and (not record.task or (self._open_tasks is not None and record.task not in self._open_tasks))
            and all(map(iteration_of, snapshots))
            and (not snapshots or (bool(existing) and record.id in self._settled))
        )

    def without_lone_commits(
        self, allowed: Collection[_EndedSession], *, dry_run: bool
    ) -> list[_EndedSession]:
        """Return the sessions whose snapshots hold no commit that their branches do not contain.

        The snapshots of the others stay, and these commits get refs ``commit-<n>``.

        Arguments:
            allowed: the sessions.
            dry_run: make no ref.

        Raises:
            GitError: a ref cannot be made.
            OSError: no private directory can be made.
            RalphError: the repository cannot be used.

        """
        suspects = [found for found in allowed if found.record.id in self._snapshots]
        if not suspects:
            return [*allowed]
        with objects_of(self._project) as objects:
            lone = {found.directory: self._lone_commits(objects, found.record) for found in suspects}
        if not dry_run:
            by_id = {found.record.id: lone[found.directory] or () for found in suspects}
            for agent_id, commits in by_id.items():
                make_snapshots(self._project.git, agent_id, commits)
        return [found for found in allowed if lone.get(found.directory, []) == []]

    def _lone_commits(self, objects: Git, record: SessionRecord) -> list[str] | None:
        """Return the commits that only the snapshots of a session may hold; ``None`` if that is not known."""
        try:
            return lone_parents(objects, self._snapshots[record.id].values(), self._tips(record))
        except GitError:  # a commit is missing
            return None

    def _settled_ids(self, old: Collection[_EndedSession]) -> set[str]:
        """Return the ids whose every session is among the old ones, and has ended in order."""
        in_order = {found.directory for found in old if _ended_in_order(found.directory)}
        directories = {home.sessions / name for home in self._homes for name in _names_in(home.sessions)}
        others = {agent_id_of(path.name) for path in directories - in_order}
        return {found.record.id for found in old} - {*filter(None, others)}

    def _is_in_use(self, found: _EndedSession) -> bool:
        """Return whether a process, a worktree or a save of the session is there; also if that is unknown."""
        record, root = found.record, self._project.root
        places = [root / parent / record.worktree_name for parent in (WORKTREES, CLONES)]
        places += [place.with_name(f"{place.name}.leaving") for place in places]
        if self._project.repository is not None:
            places.append(self._project.repository.common_dir / "worktrees" / record.worktree_name)
        for home in self._homes:
            places += [home.record_path(record.id), home.replicas / record.session]
            places += [*home.bundles.glob(f"{record.session}.*")]
        if record.session in self._saves or any(map(os.path.lexists, places)):
            return True
        locks = [found.directory / "agent.lock", *(home.lock_path(record.id) for home in self._homes)]
        try:
            return any(map(files.is_locked, locks))
        except OSError:
            return True

    def delete_snapshots(self, going: Collection[_EndedSession], now: float) -> None:
        """Delete the snapshots of the iterations of sessions.

        Raises:
            GitError: one was changed meanwhile; none is deleted.

        """
        changes: dict[str, RefChange] = {}
        for found in going:
            if snapshots := self._snapshots.get(found.record.id):
                for name in _names_of(found.record) & self._heads.keys():
                    tip = self._heads[name]
                    changes[HEADS + name] = RefChange(HEADS + name, tip, tip)
                changes |= {ref: RefChange(ref, tip, None) for ref, tip in snapshots.items()}
        if changes:
            change_refs(self._project.git, [*changes.values()], "ralph-wrap: the work has landed", int(now))


def _names_of(record: SessionRecord) -> set[str]:
    """Return the names that the branches of a session have, or may have."""
    own = f"ralph/{record.id}"
    return {own, own + WIP, record.branch or own}


def _landed(project: Project, tips: Collection[str]) -> set[str]:
    """Return those commits that the main branch contains.

    Raises:
        GitError: a commit is missing, or git failed.

    """
    main = branches.tip_of_main(project)
    if main is None or not tips:
        return set()
    with objects_of(project) as objects:
        lacking = {commit.id for commit in commits_without(objects, tips, main)}
    return {*tips} - lacking


def _ended_in_order(directory: Path) -> bool:
    """Return whether the session saved everything at its end, and kept no worktree."""
    found = report.read(directory / "report.json")
    return isinstance(found, SessionReport) and found.ended_by != "killed" and found.kept is None


def _open_tasks(homes: Iterable[Registry]) -> set[str] | None:
    """Return the tokens of the tasks that no batch has noted as done; ``None`` if that is not known."""
    found: set[str] = set()
    try:
        for home in homes:
            for path in (home.directory / "batches").glob("*/state.json"):
                found |= _BATCH.read(path, _tokens)
    except (OSError, ValueError):
        return None
    return found


def _tokens(loaded: dict[str, Any]) -> set[str]:
    return {task["token"] for task in loaded["tasks"].values() if task["done"] is not True}


def _remove_files(directory: Path) -> None:
    """Delete the files of a session, the record last.

    Raises:
        OSError: one cannot be deleted.

    """
    record = directory / "record.json"
    for path in sorted(directory.iterdir()):
        if path == record:
            continue
        if stat.S_ISDIR(path.lstat().st_mode):
            files.remove_tree(path)
        else:
            path.unlink(missing_ok=True)
    record.unlink(missing_ok=True)
    directory.rmdir()
