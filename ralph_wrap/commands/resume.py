"""Choose ended sessions to go on with, and find what a new session needs for that."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ralph_wrap import branches
from ralph_wrap.branches import HEADS, WIP
from ralph_wrap.branches.compare import compare
from ralph_wrap.branches.intake import may_name_branches
from ralph_wrap.errors import ConflictError, NotFoundError, RalphError, RefusedError
from ralph_wrap.git import list_refs, read_commit, worktree_holding
from ralph_wrap.state import inventory, remote_claim, report, session_start
from ralph_wrap.state.advice import to_go_on
from ralph_wrap.state.inventory import FoundSession, Verdict
from ralph_wrap.state.project import CLONES, WORKTREES, Project, objects_of, registries, repository_of
from ralph_wrap.state.record import FETCHED_FROM, FETCHED_REPORT, SessionRecord, read_record
from ralph_wrap.state.registry import Registry
from ralph_wrap.state.session_start import FoundStart
from ralph_wrap.state.wording import ELSEWHERE
from ralph_wrap.system import liveness, process_table
from ralph_wrap.system.files import lock_holder
from ralph_wrap.system.log import Commands
from ralph_wrap.system.text import command
from ralph_wrap.worktree.save.trees import INDEX_TITLE

INTERRUPTED = {
    *("signal", "killed", "stop", "usage-limit", report.NOT_LOGGED_IN),
    *("max-iterations", "max-failures", "max-stalls", "max-time", "max-cost", "max-tokens"),
}
"""The ends after which ``ralph-wrap resume --all`` goes on; a kept promise is none of them."""

_KILLED = {"killed", ELSEWHERE}
"""How a fetched session ended whose claim says that it runs."""

_MOST_RESTARTS = 3
"""Resumes in a row after a restart that bring no progress."""

_FINISHED_WITHIN = 30.0
"""Seconds for which a session is waited for that another process finishes."""

_LOOK = 0.05
"""Seconds between two looks at it."""


class ResumableSession(NamedTuple):
    """An ended session that a new one can go on from.

    Attributes:
        directory: of the session.
        base: the commit that a worktree starts from; ``None`` without a worktree.
        has_branch: its branch exists; otherwise the branch begins anew at *base*.
        started: how it was started; ``None`` if that is unknown.

    """

    directory: Path
    record: SessionRecord
    base: str | None
    has_branch: bool
    started: FoundStart | None


def resumable(
    project: Project,
    name: str,
    main: str,
    *,
    again: bool,
    remote: str | None = None,
    default: str | None = None,
) -> ResumableSession:
    """Return a session that the user named, if a new one can go on from it.

    Arguments:
        name: an id, a branch or a title.
        main: ``main`` in the configuration.
        again: go on even if the main branch has its work.
        remote: the remote on which the session is claimed first; ``None`` for none.
        default: the commit to begin from if the session has left no work; ``None``: that is an error.

    Raises:
        NotFoundError: there is no such session, or its branch is gone.
        ConflictError: it runs, its branch is checked out, or the main branch has its work.
        RefusedError: it may run on another machine, or its record cannot be read.

    """
    found = _find(project, name)
    record = _begun(found.home, _ended(found))
    _require_remote(record, remote)
    if record.branch not in {None, f"ralph/{record.id}"} and not may_name_branches(project, found.home):
        raise RefusedError(
            f"session {record.session} names branch {record.branch}, and an agent may have written that",
            f"to merge its work: ralph-wrap merge {record.id}",
        )
    directory = found.home.sessions / record.session
    started = _with_branch(session_start.read(directory, project), project, found.home, record)
    if record.branch is None:
        return ResumableSession(directory, record, None, has_branch=False, started=started)
    ref, wip = HEADS + record.branch, f"{HEADS}ralph/{record.id}{WIP}"
    tips = list_refs(project.git, ref, wip)
    if not tips and default is None:
        raise _nothing_left(record)
    for tip in tips:
        if holder := worktree_holding(project.git, tip):
            raise ConflictError(
                f"branch {tip.removeprefix(HEADS)} is checked out in {holder}",
                _to_free(project, record, holder),
            )
    for parent in (WORKTREES, CLONES):
        if os.path.lexists(kept := project.root / parent / record.worktree_name):
            raise ConflictError(
                f"session {record.session} still has its worktree {kept}",
                _to_free(project, record, kept),
            )
    if not again and _is_merged(project, record, main):
        raise ConflictError(
            f"the main branch has the commits of {record.branch} already"
            f"{', but not its saved work' if wip in tips else ''}",
            f"to go on all the same: ralph-wrap resume {record.id} --again",
        )
    saved = tips.get(wip)
    base = tips.get(ref) or (saved and _parent(project, saved)) or record.base or saved or default
    return ResumableSession(directory, record, base, has_branch=ref in tips, started=started)


class Interrupted(NamedTuple):
    """The ended sessions that a resume of all considers, by their agent ids.

    Attributes:
        ids: those that were interrupted, the oldest first.
        stuck: those that made no progress in several restarts.
        unknown: those whose end is not known, with the reason and what to type.
        blocked: those that wait for an answer, with what to type.

    """

    ids: list[str]
    stuck: list[str]
    unknown: dict[str, tuple[str, str]]
    blocked: dict[str, Commands]


def interrupted(project: Project) -> Interrupted:
    """Return each ended session that was interrupted; of several with one agent id, the newest counts."""
    newest = _newest(project)
    outcomes = {record.id: _outcome(registry, _begun(registry, record)) for record, registry in newest}
    return Interrupted(
        [agent_id for agent_id, outcome in outcomes.items() if outcome.ended_by in INTERRUPTED],
        [],
        _unreadable_records(project, newest) | _unknown(outcomes),
        {
            record.id: to_go_on(project, record, f'ralph-wrap resume {record.id} -m "…"')
            for record, _ in newest
            if outcomes[record.id].ended_by == report.BLOCKED
        },
    )


def interrupted_by_container_end(project: Project) -> Interrupted:
    """Return the sessions that the last end of this container interrupted.

    A session counts if it ran on this host before its PID 1 began, in the newest pid namespace with sessions.
    """
    newest = _newest(project)
    ended = [
        (record, registry)
        for record, registry in newest
        if record.host == liveness.host() and _is_older_than_init(record)
    ]
    latest = ended[-1][0].pid_namespace if ended else ""
    ended = [(record, registry) for record, registry in ended if record.pid_namespace == latest]
    outcomes = {record.id: _outcome(registry, record) for record, registry in ended}
    ended = [(record, registry) for record, registry in ended if outcomes[record.id].is_of_container]
    stuck = [record.id for record, registry in ended if _is_stuck(project, registry, record)]
    going_on = [record.id for record, _ in ended if record.id not in stuck]
    return Interrupted(going_on, stuck, _unreadable_records(project, newest) | _unknown(outcomes), {})


def _is_older_than_init(record: SessionRecord) -> bool:
    """Return whether a session began before PID 1; the number of its namespace may have come back since."""
    return record.boot_id != liveness.boot_id() or record.start_time < (process_table.start_time(1) or 0.0)


def _nothing_left(record: SessionRecord) -> NotFoundError:
    """Return the error for a session without branch and saved work here."""
    source, described = record.extra.get(FETCHED_FROM), record.extra.get(FETCHED_REPORT)
    if isinstance(source, str) and isinstance(described, dict) and described.get("ended_by") in _KILLED:
        machine = record.host or "its machine"
        return NotFoundError(
            f"session {record.session} was killed before its first push: {source} has its claim, and no work",
            Commands.of(
                f"on {machine}, to go on: ralph-wrap resume {record.id} --remote {source}",
                f"to give it up: git push {source} :{remote_claim.ref_of(record.id)}",
            ),
        )
    return NotFoundError(
        f"branch {record.branch} is gone, and session {record.session} has no saved work",
        f"if it was dropped: ralph-wrap restore {record.id}",
    )


def _require_remote(record: SessionRecord, remote: str | None) -> None:
    """Check that a session of another machine is claimed on its remote before it goes on here."""
    source = record.extra.get(FETCHED_FROM)
    if isinstance(source, str) and remote is None:
        raise ConflictError(
            f"session {record.session} belongs to a machine that mirrors it to {source}",
            f"to take it over: ralph-wrap resume {record.id} --remote {source}",
        )


class _Outcome(NamedTuple):
    ended_by: str | None = None
    exit_status: int | None = None
    commits: int | None = None
    problem: str = ""

    @property
    def is_of_container(self) -> bool:
        """The end of a container can have ended it: PID 1 sends SIGTERM, and then the kernel kills all."""
        return self.ended_by == "killed" or self.exit_status == 128 + signal.SIGTERM


def _outcome(registry: Registry, record: SessionRecord) -> _Outcome:
    found = report.read(registry.sessions / record.session / "report.json")
    if found is None:
        return _Outcome(problem="it has left no report")
    if isinstance(found, report.UnreadableReport):
        return _Outcome(problem=found.sentence)
    return _Outcome(found.ended_by, found.exit_status, found.commits)


def _unknown(outcomes: Mapping[str, _Outcome]) -> dict[str, tuple[str, str]]:
    return {
        agent_id: (
            outcome.problem,
            Commands.of(
                f"to see what it did: {command('ralph-wrap', 'logs', agent_id)}",
                f"to go on with it: {command('ralph-wrap', 'resume', agent_id)}",
            ),
        )
        for agent_id, outcome in outcomes.items()
        if outcome.problem
    }


def _unreadable_records(
    project: Project, newest: list[tuple[SessionRecord, Registry]]
) -> dict[str, tuple[str, str]]:
    """Return the reason for each finished session whose record cannot be read, by its agent id.

    Arguments:
        newest: the newest session of each agent id that can be read; older ones do not count.

    """
    known = {record.id: record.session for record, _ in newest}
    running = {session.id for session in inventory.unfinished(project)}
    found = {}
    for registry in registries(project):
        for path in registry.finished_paths():
            record = read_record(path)
            is_newest = known.get(record.id, "") < path.parent.name and record.id not in running
            if not isinstance(record, SessionRecord) and is_newest:
                found[record.id] = (
                    f"its record cannot be read: {record.reason}",
                    "to see what it left: ralph-wrap review",
                )
    return found


def _newest(project: Project) -> list[tuple[SessionRecord, Registry]]:
    """Return the newest session of each agent id that no session has now, the oldest first."""
    newest: dict[str, tuple[SessionRecord, Registry]] = {}
    for registry in registries(project):
        for record in registry.finished():
            if isinstance(record, SessionRecord) and (
                record.id not in newest or newest[record.id][0].session < record.session
            ):
                newest[record.id] = record, registry
    for session in inventory.unfinished(project):
        newest.pop(session.id, None)
    return sorted(newest.values(), key=lambda found: found[0].session)


def _is_stuck(project: Project, registry: Registry, record: SessionRecord) -> bool:
    """Return whether the last sessions of this agent id have brought neither a commit nor other files."""
    wip = f"{HEADS}ralph/{record.id}{WIP}"
    left = list_refs(project.git, wip).get(wip)
    for _ in range(_MOST_RESTARTS):
        earlier = read_record(registry.sessions / str(record.resumes) / "record.json")
        outcome = _outcome(registry, record)
        has_progressed = outcome.commits or outcome.problem or record.restored != left
        if has_progressed or not isinstance(earlier, SessionRecord):
            return False
        record, left = earlier, record.restored
    return True


def _with_branch(
    started: FoundStart | None, project: Project, home: Registry, record: SessionRecord
) -> FoundStart | None:
    """Return how a session was started; the user must approve it if only the record names its branch.

    The agent of the new session commits to that branch, and an agent may have written the record.
    """
    if record.branch in {None, f"ralph/{record.id}"} or _is_asked_for(project, home, record):
        return started
    start = started.start if started else session_start.SessionStart({}, (), ".")
    return session_start.FoundStart(
        start._replace(options={**start.options, "branch": record.branch}), is_genuine=False
    )


def _is_asked_for(project: Project, home: Registry, record: SessionRecord) -> bool:
    """Return whether the user has typed the branch of a session, or of the first one that it goes on from."""
    branch = record.branch
    while True:
        found = session_start.read(home.sessions / record.session, project)
        if found is not None and found.is_genuine and found.start.options.get("branch") == branch:
            return True
        if record.resumes is None or record.resumes >= record.session:
            return False
        earlier = read_record(home.sessions / record.resumes / "record.json")
        if not isinstance(earlier, SessionRecord):
            return False
        record = earlier


def _find(project: Project, name: str) -> FoundSession:
    """Return a session; one that another process finishes is waited for: a new container does that first."""
    deadline = time.monotonic() + _FINISHED_WITHIN
    while True:
        found = inventory.find(project, name)
        if (
            found.verdict is not Verdict.LIVE
            or found.record is None
            or liveness.is_running(found.record.owner)
        ):
            return found
        holders = lock_holder.held_lock(found.home.lock_path(found.record.id)).holders
        if not holders:  # the other process has just finished it, or is not visible here
            return inventory.find(project, name)
        if (
            any(liveness.bears_name(holder.pid, found.id) for holder in holders)
            or time.monotonic() > deadline
        ):
            return found
        time.sleep(_LOOK)


def _ended(found: FoundSession) -> SessionRecord:
    if found.verdict is Verdict.LIVE:
        raise ConflictError(
            f"session {found.name} runs",
            Commands.of(
                f"to watch it: ralph-wrap logs -f {found.id}",
                f"to end it first: ralph-wrap stop {found.id}",
            ),
        )
    if found.verdict is Verdict.FOREIGN:
        raise RefusedError(
            f"session {found.name} may run on another machine",
            f"if you know that it is dead: ralph-wrap sweep --adopt {found.id}",
        )
    if found.record is None:
        raise RefusedError(
            f"the record of session {found.name} cannot be read: {found.note}", "ralph-wrap ps --all"
        )
    if found.verdict is not Verdict.FINISHED:
        raise RefusedError(f"session {found.name} is dead and could not be finished", "ralph-wrap sweep")
    return found.record


def _begun(home: Registry, record: SessionRecord) -> SessionRecord:
    """Return the newest session whose agent could start: a ``resume`` may have failed, or was killed."""
    while record.resumes is not None:
        earlier = read_record(home.sessions / record.resumes / "record.json")
        if not isinstance(earlier, SessionRecord) or earlier.session >= record.session:
            break
        lacks_branch = record.branch is None and earlier.branch is not None
        if not lacks_branch and (home.sessions / record.session / session_start.START).exists():
            break
        record = earlier
    return record


def _to_free(project: Project, record: SessionRecord, holder: Path) -> str:
    if holder in {project.root / parent / record.worktree_name for parent in (WORKTREES, CLONES)}:
        return f"to save the worktree and remove it: ralph-wrap rm {record.id}"
    return f"to check out another commit there: {command('git', '-C', holder, 'switch', '--detach')}"


def _is_merged(project: Project, record: SessionRecord, main: str) -> bool:
    """Return whether the session's branch has commits, and the main branch has all of them."""
    try:
        wanted = branches.named(branches.read(project), str(record.branch))
        main_branch = branches.main_branch(project, main)
    except RalphError:
        return False
    if wanted.tip == wanted.base:
        return False
    with objects_of(project) as objects:
        found, _ = compare(objects, repository_of(project), main_branch, [wanted], pairs=False)
    return bool(found[wanted.name].merged)


def _parent(project: Project, saved: str) -> str | None:
    """Return the commit that saved work stands on; ``None`` if there is none: its branch was unborn."""
    with objects_of(project) as objects:
        parent = next(iter(read_commit(objects, saved).parents), None)
        is_index = parent is not None and read_commit(objects, parent).subject.startswith(INDEX_TITLE)
    return None if is_index else parent
