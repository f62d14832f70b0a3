"""Delete the files of sessions that ended long ago.

**Why this is safe.** The files of a session go ``keep_sessions`` after its end, with the snapshots of its
iterations. All of this must hold:

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

The end of a session is the newest time that says so: of any of its files, or in its report. So an agent, or a
copy of the project, can make it later and not earlier. A clock that is wrong for a moment deletes nothing:
the files go only if an earlier command, at least a day before, has found them due as well. Unknown is a
reason to stay: what cannot be read, a lock that cannot be checked, a git that fails.

Refs change by transactions that name their old commits, and those of the branches that are the proof. The
record of a session goes last: after a kill in between, the next command finds what is left.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap import branches
from ralph_wrap.branches import HEADS, WIP
from ralph_wrap.branches.dropped import DROPPED, DROPPED_ELSEWHERE, branch_of
from ralph_wrap.errors import GitError, NotARepositoryError
from ralph_wrap.git import Git, commits_without, list_refs
from ralph_wrap.git.quarantine import SUBMODULES, owners
from ralph_wrap.git.transaction import RefChange, change_refs
from ralph_wrap.state import report
from ralph_wrap.state.ids import agent_id_of, started
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
from ralph_wrap.worktree.retention import SECOND_LOOK, SNAPSHOTS, first_looks, iteration_of, names_in
from ralph_wrap.worktree.save.commits import lone_parents, make_snapshots

_DUE_SESSIONS = "expiring-sessions.json"  # when the files of each session were first found due
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
        kept: refs of commits that no branch has; they keep the files for ever, and nothing else does.

    """

    id: str
    session: str
    title: str
    ended: float
    size: int
    goes: float | None
    kept: tuple[str, ...] = ()


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
    looks = first_looks(path, [found.record.session for found in due], now, dry_run=dry_run)
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
    kept = [
        OldSession(found.record.id, found.record.session, found.record.title, found.ended, 0, None, refs)
        for found in old
        if (refs := needs.keeping_commits(found))
    ]
    may_go = {row.session for row in rows if row.goes is None}
    if not dry_run:
        needs.delete_snapshots([found for found in due if found.record.session in may_go], now)
        for found in due:
            if found.record.session in may_go:
                _remove_files(found.directory)
    return [*rows, *kept]


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
            names_in(home.agents)
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
        snapshots = self._snapshots.get(record.id, {})
        return (
            self._is_done(found)
            and all(map(iteration_of, snapshots))
            and (not snapshots or (bool(self._tips(record)) and record.id in self._settled))
        )

    def keeping_commits(self, found: _EndedSession) -> tuple[str, ...]:
        """Return the refs of other commits than snapshots that alone need the files of a landed session."""
        refs = self._snapshots.get(found.record.id, {})
        others = tuple(sorted(ref for ref in refs if not iteration_of(ref)))
        return others if others and self._tips(found.record) and self._is_done(found) else ()

    def _is_done(self, found: _EndedSession) -> bool:
        """Return whether the work of a session has landed, nothing uses it, and no batch waits for it."""
        record = found.record
        if self._project.repository is None and record.branch is not None:
            return False
        return (
            not self._is_in_use(found)
            and self._tips(record) <= self._landed
            and not _names_of(record) & self._dropped
            and (not record.task or (self._open_tasks is not None and record.task not in self._open_tasks))
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
        directories = {home.sessions / name for home in self._homes for name in names_in(home.sessions)}
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
