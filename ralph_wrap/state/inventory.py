"""What sessions there are: records joined with locks and branches, and the verdict on each."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import NotFoundError
from ralph_wrap.git import list_refs
from ralph_wrap.git.compare import CommitCounts
from ralph_wrap.state import ids, report, selector, told
from ralph_wrap.state.project import CLONES, WORKTREES, Project, registries
from ralph_wrap.state.record import FETCHED_FROM, SessionRecord, UnreadableRecord, read_record
from ralph_wrap.state.registry import Registry
from ralph_wrap.state.selector import Candidate
from ralph_wrap.state.session_files import waits_for_room, waits_until
from ralph_wrap.system import liveness, process_table
from ralph_wrap.system.liveness import Liveness, ProcessIdentity, SessionNames


class Verdict(Enum):
    """The verdict on a session; ralph-wrap never touches a *foreign* or *unknown* one."""

    LIVE = "live"
    ORPHAN = "orphan"
    FOREIGN = "foreign"
    FINISHED = "finished"
    UNKNOWN = "unknown"


class SessionEntry(NamedTuple):
    """One session.

    Attributes:
        id: agent id.
        session: session id, ``None`` if the record cannot be read.
        verdict: a value of :class:`Verdict`.
        agent: its agent or command.
        iteration: the number of the latest iteration.
        age: seconds since it began.
        branch: what it works on, or has worked on.
        ahead: commits of *branch* that the main branch lacks.
        workspace: the directory where its agent works, or what is left of it, as it is called here; ``None``
            if there is none here.
        note: the reason why the record, or the report of a finished session, cannot be read.
        ended_by: from the report of a finished session, like the next four; ``None`` if it cannot be read.
        exit_status: of ``ralph-wrap run``.
        saved: the branch with its uncommitted work.
        kept: the reason why its worktree still exists.
        question: what its agent asks a person, if it is blocked.
        cpu_seconds: like the next three, from :class:`ralph_wrap.system.process_table.ResourceUsage`.
            ``None`` unless the session is live and its processes are visible here.
        cpu_percent: the average since the session began.
        memory_bytes: the memory of its processes.
        processes: their number.
        title: what people call the session; empty if that is not known.
        state: the state in its record: starting, running, ending or finished.
        waits_until: the end of the usage limit for which it waits: UTC, ISO 8601; ``None`` if it does not.
        waits_for_room: it waits, because a disk is full.
        commits: commits on *branch* since the session began; of a finished one, until its end.
        agent_now: the agent that works in place of *agent*, whose usage limit holds; ``None`` for none.
        branch_gone: the session has ended, and *branch* is not here: dropped, renamed, deleted or elsewhere.
        port: the first of the ports for its servers (``RALPH_PORT``); ``None`` unless the session is live.
        messages: how many messages wait for its next iteration (``ralph-wrap tell``), or how many it has not
            read, if it has ended.

    """

    id: str
    session: str | None
    verdict: str
    agent: str | None = None
    iteration: int | None = None
    age: int | None = None
    branch: str | None = None
    ahead: int | None = None
    workspace: str | None = None
    note: str | None = None
    ended_by: str | None = None
    exit_status: int | None = None
    saved: str | None = None
    kept: str | None = None
    question: str | None = None
    cpu_seconds: float | None = None
    cpu_percent: float | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    title: str = ""
    state: str | None = None
    waits_until: str | None = None
    waits_for_room: bool = False
    commits: int | None = None
    port: int | None = None
    branch_gone: bool = False
    messages: int = 0
    agent_now: str | None = None


class FoundSession(NamedTuple):
    """A session that the user named, or one that is not finished.

    Attributes:
        id: agent id.
        home: its registry.
        record: ``None`` if it cannot be read.
        verdict: the verdict at the moment of the search.
        note: the reason for *unknown*.

    """

    id: str
    home: Registry
    record: SessionRecord | None
    verdict: Verdict
    note: str = ""

    @property
    def name(self) -> str:
        """The session id, or the agent id if nothing else is known."""
        return self.record.session if self.record else self.id

    @property
    def title(self) -> str:
        """What people call the session; empty if that is not known."""
        return self.record.title if self.record else ""

    @property
    def directory(self) -> Path | None:
        """The session's own directory; ``None`` if that is not known."""
        return self.home.sessions / self.record.session if self.record else None

    @property
    def port(self) -> int | None:
        """The first of the ports for its servers; ``None`` unless the session is live."""
        return self.record.port or None if self.record and self.verdict is Verdict.LIVE else None

    @property
    def waits_until(self) -> str | None:
        """The end of the usage limit for which it waits: UTC, ISO 8601; ``None`` if it does not."""
        is_live = self.verdict is Verdict.LIVE and self.directory
        return waits_until(self.directory, datetime.now(UTC)) if is_live and self.directory else None

    @property
    def waits_for_room(self) -> bool:
        """Whether it waits, because a disk is full."""
        return bool(self.verdict is Verdict.LIVE and self.directory and waits_for_room(self.directory))

    def again(self) -> FoundSession:
        """Return it with the verdict of now; *finished* once its record has left and its lock is free."""
        unfinished = _unfinished(self.home, self.id, SessionNames())
        if unfinished is not None and (unfinished.record is None or unfinished.name == self.name):
            return unfinished
        held = False
        if unfinished is None:
            with contextlib.suppress(OSError):  # the record leaves first, then the lock
                held = self.home.is_locked(self.id)
        return self._replace(verdict=Verdict.LIVE if held else Verdict.FINISHED)


def find(project: Project, name: str) -> FoundSession:
    """Return the session of a name: the one that is not finished, else the newest one that is.

    Arguments:
        name: an agent id, a session id, a branch that the session recorded, or a title.

    Raises:
        UsageError: the title of several sessions fits.
        NotFoundError: there is no such session.

    """
    agent_id = ids.agent_id_of(name)
    # Few records have the id. Only if none fits, the others are read: the text may be a title.
    for records in (f"*-{agent_id}", "*") if agent_id else ("*",):
        if found := select(name, every(project, records)):
            return found
    hint = "to list them: ralph-wrap ps --all"
    repository = project.repository if agent_id else None
    # Whose it is, a sweep finds out: it names a worktree that no record knows.
    if repository and any((repository.common_dir / "worktrees").glob(f"*-{agent_id}")):
        hint = "a worktree has this id, and no record; to see how to save its work: ralph-wrap sweep"
    raise NotFoundError(f"there is no session {name} in {project.root}", hint)


def every(project: Project, records: str = "*") -> list[FoundSession]:
    """Return the sessions that are not finished, and after them the finished ones, the newest first.

    Arguments:
        records: a pattern for the ids of finished sessions.

    """
    homes = list(registries(project))
    return [*_open(homes), *_closed(homes, records)]


def select(name: str, sessions: Iterable[FoundSession]) -> FoundSession | None:
    """Return the session of a name, ``None`` if there is none; the first of several fits.

    Raises:
        UsageError: the title of several sessions fits.

    """
    found: FoundSession | None = selector.select(name, [_candidate(session) for session in sessions])
    return found


def _candidate(session: FoundSession) -> Candidate:
    branch = session.record.branch if session.record else None
    short = branch.removeprefix("ralph/") if branch else None
    return Candidate(
        session,
        session.id,
        ((session.id, session.name), (branch, branch and f"refs/heads/{branch}"), (short,)),
        session.title,
    )


def _open(homes: Iterable[Registry]) -> Iterator[FoundSession]:
    named = SessionNames()
    for home in homes:
        for record in home.unfinished():
            if found := _unfinished(home, record.id, named):
                yield found


def _closed(homes: Iterable[Registry], records: str) -> Iterator[FoundSession]:
    """Yield the finished sessions whose ids match a pattern, the newest first."""
    paths = [(path, home) for home in homes for path in home.finished_paths(records)]
    for path, home in sorted(paths, key=lambda pair: pair[0].parent.name, reverse=True):
        record = read_record(path)
        if isinstance(record, SessionRecord):
            yield FoundSession(record.id, home, record, Verdict.FINISHED)
        else:
            yield FoundSession(record.id, home, None, Verdict.UNKNOWN, record.reason)


def unfinished(project: Project) -> list[FoundSession]:
    """Return every session of a project that is not finished."""
    return [session for session in _open(registries(project)) if session.verdict is not Verdict.FINISHED]


def _unfinished(home: Registry, agent_id: str, named: SessionNames) -> FoundSession | None:
    """Return the session whose record is in *agents*; ``None`` if there is none, or no longer."""
    record = read_record(home.record_path(agent_id))
    note = ""
    verdict = Verdict.UNKNOWN
    if isinstance(record, UnreadableRecord):
        note = record.reason
    else:
        try:
            verdict = verdict_on(record, home, named)
        except OSError as error:
            note = f"its lock cannot be read: {error.strerror}"
    if not home.has(agent_id):
        return None
    return FoundSession(agent_id, home, record if isinstance(record, SessionRecord) else None, verdict, note)


def classify(
    record: SessionRecord, *, locked: bool, running: bool, boot_id: str, host: str, copied: bool = False
) -> Verdict:
    """Return the verdict on a record that can be read.

    Arguments:
        record: of the session.
        locked: a process holds its lock.
        running: its process is seen here.
        boot_id: of this kernel.
        host: this one's name.
        copied: its lock is not the one that its owner holds: record and lock were copied, or restored.

    """
    if record.state == "finished" and not locked and not running:
        return Verdict.FINISHED
    if copied and not locked and not running:
        return Verdict.FOREIGN
    life = liveness.judge(
        locked=locked,
        running=running,
        owner_boot_id=record.boot_id,
        owner_host=record.host,
        boot_id=boot_id,
        host=host,
    )
    return {Liveness.ALIVE: Verdict.LIVE, Liveness.DEAD: Verdict.ORPHAN, Liveness.FOREIGN: Verdict.FOREIGN}[
        life
    ]


def sessions(
    project: Project,
    now: datetime,
    *,
    finished: bool,
    elsewhere: Collection[str] = (),
    main: str | None = None,
) -> list[SessionEntry]:
    """Return every session of a project that is not finished, or has kept its worktree, oldest first.

    Arguments:
        now: for the ages.
        finished: all finished ones, too.
        elsewhere: ids of sessions that run on other machines; their records here look finished.
        main: object id of the main branch's tip; ``None`` if there is none.

    """
    entries = []
    owners = {}
    bases: dict[tuple[str, str | None], str | None] = {}
    named = SessionNames()
    taken = set()  # worktrees of sessions that go on: their earlier sessions have kept nothing
    for home in registries(project):
        for found in home.unfinished():
            if isinstance(found, SessionRecord):
                taken.add(found.worktree_name)
                bases[found.id, found.session] = found.base
            entry = _entry(found, (home, named), now, project)
            # If the record is gone, its session has ended since we read it: it is among the finished ones.
            if home.has(found.id) and (finished or entry.verdict != Verdict.FINISHED.value):
                entries.append(_with_end(entry, home))
                if entry.verdict == Verdict.LIVE.value and isinstance(found, SessionRecord):
                    owners[found.session] = found.owner
        kept = [home.with_worktrees(project.root / parent, taken) for parent in (WORKTREES, CLONES)]
        running = [read_record(path) for name in elsewhere for path in home.finished_paths(name)]
        ended = (
            home.finished() if finished else [record for records in (*kept, running) for record in records]
        )
        entries += [_with_end(_entry(found, None, now, project, taken), home) for found in ended]
    entries = _with_commits(_with_usage(entries, owners), bases, main, project)
    return sorted(entries, key=lambda entry: (entry.session or "", entry.id))


def _with_commits(
    entries: list[SessionEntry],
    bases: Mapping[tuple[str, str | None], str | None],
    main: str | None,
    project: Project,
) -> list[SessionEntry]:
    """Add the numbers of commits, of live sessions first. The report of a finished one has its own number."""
    on_branches = [number for number, entry in enumerate(entries) if entry.branch]
    if not on_branches or project.repository is None:
        return entries
    refs = list_refs(project.git, "refs/heads/")
    counts = CommitCounts(project.git, refs)
    for number in sorted(on_branches, key=lambda number: _ORDER.index(entries[number].verdict)):
        entry = entries[number]
        ref, commits = f"refs/heads/{entry.branch}", entry.commits
        if entry.verdict != Verdict.FINISHED.value and (base := bases.get((entry.id, entry.session))):
            commits = counts.since(base, ref)
        entries[number] = entry._replace(
            commits=commits,
            ahead=counts.since(main, ref) if main else None,
            branch_gone=entry.verdict == Verdict.FINISHED.value and ref not in refs,
        )
    return entries


_ORDER = [
    verdict.value
    for verdict in (Verdict.LIVE, Verdict.ORPHAN, Verdict.FOREIGN, Verdict.UNKNOWN, Verdict.FINISHED)
]


def _with_usage(entries: list[SessionEntry], owners: Mapping[str, ProcessIdentity]) -> list[SessionEntry]:
    """Add the resources that sessions use, if we see their owners."""
    seen = {session: owner.pid for session, owner in owners.items() if liveness.is_running(owner)}
    used = process_table.usage(seen)
    return [
        entry._replace(**used[entry.session]._asdict()) if entry.session in used else entry
        for entry in entries
    ]


def verdict_on(record: SessionRecord, home: Registry, named: SessionNames) -> Verdict:
    """Return the verdict of this process on a record in a registry.

    An agent can write another process into the record, and put a free lock in the place of the held one. The
    name of the session's process still shows that it lives.

    Arguments:
        named: the sessions whose processes we see by their names.

    Raises:
        OSError: its lock cannot be read.

    """
    locked = home.is_locked(record.id)
    return classify(
        record,
        locked=locked,
        running=liveness.is_running(record.owner) or (not locked and record.id in named),
        boot_id=liveness.boot_id(),
        host=liveness.host(),
        copied=record.lock_inode not in {0, home.lock_inode(record.id)},
    )


def _entry(
    found: SessionRecord | UnreadableRecord,
    registered: tuple[Registry, SessionNames] | None,
    now: datetime,
    project: Project,
    taken: Collection[str] = (),
) -> SessionEntry:
    """Return the entry of a record.

    Arguments:
        registered: its registry; ``None`` if it is finished.
        now: for its age.
        project: its project, as it is called here.
        taken: the names of worktrees in which other sessions work now.

    """
    if isinstance(found, UnreadableRecord):
        return _unknown(found.id, found.reason)
    verdict = Verdict.FINISHED
    if registered is not None:
        try:
            verdict = verdict_on(found, *registered)
        except OSError as error:
            return _unknown(found.id, f"its lock cannot be read: {error.strerror}")
    live = registered[0].sessions / found.session if verdict is Verdict.LIVE and registered else None
    return SessionEntry(
        id=found.id,
        session=found.session,
        verdict=verdict.value,
        agent=found.agent,
        iteration=found.iteration,
        age=max(0, int((now - ids.started(found.session)).total_seconds())),
        branch=found.branch,
        workspace=None if found.worktree_name in taken else workspace_of(found, project),
        title=found.title,
        state=found.state,
        waits_until=waits_until(live, now) if live else None,
        waits_for_room=live is not None and waits_for_room(live),
        port=found.port or None if verdict is Verdict.LIVE else None,
        messages=told.count_unread(registered[0].sessions / found.session)
        if verdict in {Verdict.LIVE, Verdict.FOREIGN} and registered
        else 0,
        agent_now=found.agent_now or None if verdict is Verdict.LIVE else None,
    )


def workspace_of(record: SessionRecord, project: Project) -> str | None:
    """Return the directory of a session as it is called here: a container has other names for it."""
    if record.workspace is None or FETCHED_FROM in record.extra:
        return None
    recorded = Path(record.workspace)
    # It works in the plain project root. Without a branch is also a session whose agent has never started.
    if record.branch is None and recorded.name != record.worktree_name:
        return os.fspath(recorded if recorded.is_dir() else project.main)
    places = [project.root / parent / record.worktree_name for parent in (WORKTREES, CLONES)]
    return next((os.fspath(place) for place in places if place.is_dir()), None)


def _with_end(entry: SessionEntry, home: Registry) -> SessionEntry:
    """Add how a session has ended, if it has, and as far as its report can be read.

    A session that leaves its worktree to the next start has written its report, too.
    """
    if entry.verdict not in {Verdict.FINISHED.value, Verdict.ORPHAN.value} or entry.session is None:
        return entry
    ended = report.read(home.sessions / entry.session / "report.json")
    if isinstance(ended, report.UnreadableReport):
        return entry._replace(note=ended.sentence)
    known = ended.to_dict() if ended else {}  # an agent may have changed the file
    kinds = {"ended_by": str, "exit_status": int, "saved": str, "kept": str, "question": str}
    fitting = {name: known[name] for name, kind in kinds.items() if isinstance(known.get(name), kind)}
    commits = known.get("commits")  # not from git: a project may have 20,000 sessions that have ended
    return entry._replace(
        **fitting,
        commits=commits if isinstance(commits, int) else None,
        messages=ended.count("unread") if ended else 0,
    )


def _unknown(agent_id: str, reason: str) -> SessionEntry:
    return SessionEntry(agent_id, None, Verdict.UNKNOWN.value, note=reason)
