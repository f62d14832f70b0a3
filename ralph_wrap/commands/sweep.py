"""Finish dead sessions: end their processes, save, remove, release.

A sweep does this for each record whose owner is provably dead. After a kill at any point, the next sweep can
repeat all steps:

1. **Take the lock** of the session, and read the record again. Of several sweeps, and a session that is alive
   after all, only one gets the lock.
2. **End its processes**: those with its id in their environment, which are its agent's and its own git
   commands. No other process gets a signal. Then **run the teardown** that it owes.
3. **Save and remove** with the code of a normal end, and with the settings of the record.
4. **Report, then release**. A report that the owner has already written stays. Without one, the session was
   killed, unless its record says that it had ended.

Live, foreign and unknown sessions are never touched.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.branches.broken import broken_refs, is_in_use, removal_of
from ralph_wrap.config import of_project
from ralph_wrap.errors import NotFoundError, RalphError, RefusedError
from ralph_wrap.git import Repository
from ralph_wrap.git.quarantine import SUBMODULES, is_working, owners, release
from ralph_wrap.session.kept_worktree import remove_kept
from ralph_wrap.session.notify import notification_of, notify
from ralph_wrap.session.recovery import SessionRecovery, SharedFacts
from ralph_wrap.session.remote import give_back
from ralph_wrap.session.teardown import LATER
from ralph_wrap.session.unknown_worktrees import register_anew, unknown_worktrees
from ralph_wrap.session.worktree_end import TO_SWEEP, WorktreePolicy, try_again_hint
from ralph_wrap.state import ids, inventory
from ralph_wrap.state.advice import advice_for
from ralph_wrap.state.claim import SessionClaim, take_over
from ralph_wrap.state.inventory import FoundSession, Verdict
from ralph_wrap.state.project import RUN, WORKTREES, Project, registries
from ralph_wrap.state.registry import Registry, SessionRecord, UnreadableRecord
from ralph_wrap.state.report import SessionReport, drop_command
from ralph_wrap.state.report import read as read_report
from ralph_wrap.system import files, liveness, process_table, process_tree
from ralph_wrap.system.cancel import NEVER, CancelToken
from ralph_wrap.system.liveness import SessionNames
from ralph_wrap.system.log import Commands, current, get_logger, lines_of, one_line
from ralph_wrap.system.text import command
from ralph_wrap.worktree.ignore import tidy
from ralph_wrap.worktree.model import LinkedWorktree
from ralph_wrap.worktree.remove import WorktreeOutcome
from ralph_wrap.worktree.stale_locks import remove_stale_maintenance_lock
from ralph_wrap.worktree.trash import empty_trash

log = get_logger()

_GRACE = 2.0  # seconds between TERM and KILL for the processes of a dead session
_LAST_BREATH = 2.0  # seconds for a killed process to release its files
_TICK = 0.05  # seconds between two looks
_TO_DROP = "its branch holds no work; to delete it: "
_EVENTS_READ = 1 << 20  # bytes: an agent starts early


class SweptSession(NamedTuple):
    """The result for one session that was not finished.

    Attributes:
        id: agent id.
        session: session id, ``None`` if its record cannot be read.
        verdict: the verdict before the sweep.
        action: ``finished``, ``kept`` (with its worktree, which could not be saved in full), ``left`` (not
            touched), ``failed``, or, in a dry run, ``would finish``.
        saved: the branch that holds the uncommitted work.
        note: the reason, in words.
        hint: what the user can do.
        title: what people call the session; empty if that is not known.

    """

    id: str
    session: str | None
    verdict: str
    action: str
    saved: str | None = None
    note: str | None = None
    hint: str | None = None
    title: str = ""


def sweep(
    project: Project,
    *,
    dry_run: bool = False,
    adopted: Collection[str] = (),
    cancel: CancelToken = NEVER,
) -> list[SweptSession]:
    """Finish every orphan of a project.

    Arguments:
        dry_run: touch nothing, and return what a sweep would do.
        adopted: names of foreign sessions that are dead, as the user states: ids, branches or titles. Also of
            sessions that no record knows.
        cancel: after a signal, the rest is left to the next sweep.

    Raises:
        NotFoundError: no unfinished session has a name of *adopted*.
        UsageError: the title of several sessions fits.
        RefusedError: a session of *adopted* is alive, or its record cannot be read.

    """
    swept, adopted = _adopt_lost(project, adopted, dry_run=dry_run)
    records = [(home, record) for home in registries(project) for record in home.unfinished()]
    named = SessionNames()
    verdicts = [_verdict(home, record, named) for home, record in records]
    adopted = _adoptable(
        adopted,
        [
            FoundSession(record.id, home, record if isinstance(record, SessionRecord) else None, verdict)
            for (home, record), verdict in zip(records, verdicts, strict=True)
        ],
    )
    shared = SharedFacts(project)
    for (home, record), verdict in zip(records, verdicts, strict=True):
        if verdict is Verdict.UNKNOWN and not home.has(record.id):  # another process has just finished it
            continue
        dead = verdict is Verdict.ORPHAN or (verdict is Verdict.FOREIGN and record.id in adopted)
        if isinstance(record, UnreadableRecord):
            swept.append(
                SweptSession(
                    record.id,
                    None,
                    verdict.value,
                    "left",
                    note=record.reason,
                    hint=advice_for(verdict, record.id),
                )
            )
        elif not dead and not (verdict is Verdict.FINISHED and home.has(record.id)):
            if verdict is not Verdict.LIVE:
                advice = advice_for(verdict, record.id)
                swept.append(SweptSession(record.id, record.session, verdict.value, "left", hint=advice))
        elif dry_run:
            swept.append(SweptSession(record.id, record.session, verdict.value, "would finish"))
        elif not cancel.requested:
            is_adopted = record.id in adopted
            swept += _finish(project, home, record, verdict, shared, cancel, is_adopted=is_adopted)
    if not cancel.requested:
        swept += _finish_unsaved(project, [record for _, record in records], dry_run=dry_run)
    titles = {record.id: record.title for _, record in records if isinstance(record, SessionRecord)}
    swept = [entry._replace(title=entry.title or titles.get(entry.id, "")) for entry in swept]
    if not dry_run:
        _tidy(project)
        resume_deletions(project)
    return swept


def _adopt_lost(
    project: Project, adopted: Collection[str], *, dry_run: bool
) -> tuple[list[SweptSession], Collection[str]]:
    """Write a record for each adopted session that has a worktree and none, so that the sweep finishes it.

    Returns:
        In a dry run, what a sweep would do, and the other names; without one, nothing and all names.

    Raises:
        RefusedError: nothing proves that a worktree is the session's.
        RalphError: a record cannot be written.

    """
    lost = [found for found in unknown_worktrees(project) if found.is_named(adopted)] if adopted else []
    if dry_run:
        would = [
            SweptSession(found.agent_id, found.session, Verdict.UNKNOWN.value, "would finish")
            for found in lost
        ]
        return would, [name for name in adopted if not any(found.is_named([name]) for found in lost)]
    for found in lost:
        try:
            register_anew(project, found)
        except OSError as error:
            raise RalphError(
                f"no record can be written for session {found.session}: {error.strerror}",
                command("ls", "-la", project.root / RUN),
            ) from error
    return [], adopted


def _finish_unsaved(
    project: Project,
    unfinished: Sequence[SessionRecord | UnreadableRecord],
    *,
    dry_run: bool,
) -> Iterator[SweptSession]:
    """Finish the sessions that have ended, but for a full disk could not save their worktree.

    Such a session has perhaps no report: there was no room for it.

    Arguments:
        unfinished: the records of all other sessions, which may have taken the worktree of an earlier one.

    """
    taken = {record.worktree_name for record in unfinished if isinstance(record, SessionRecord)}
    for home in registries(project):
        for record in home.with_worktrees(project.root / WORKTREES, taken):
            if not isinstance(record, SessionRecord) or _keeps_its_worktree(record):
                continue
            ended = read_report(home.sessions / record.session / "report.json")
            if ended is None or (isinstance(ended, SessionReport) and ended.way_out == TO_SWEEP):
                entry = SweptSession(record.id, record.session, Verdict.FINISHED.value, "would finish")
                entry = entry._replace(title=record.title)
                yield entry if dry_run else _save_unsaved(project, home, record, entry)


def _keeps_its_worktree(record: SessionRecord) -> bool:
    return WorktreePolicy.of_record(record) != WorktreePolicy()


def _save_unsaved(
    project: Project, home: Registry, record: SessionRecord, entry: SweptSession
) -> SweptSession:
    """Save and remove the worktree of such a session, as ``ralph-wrap rm`` does."""
    try:
        outcome = remove_kept(project, home, record)
    except Exception as error:  # noqa: BLE001 -- as in _finish
        hint = error.hint if isinstance(error, RalphError) else None
        action = "kept" if isinstance(error, RefusedError) else "failed"
        return entry._replace(action=action, note=str(error), hint=hint)
    saved = outcome.saved.branch if outcome and outcome.saved else None
    return entry._replace(action="finished", saved=saved)


def _tidy(project: Project) -> None:
    """Remove files of ours that hold no work; a failure does no harm."""
    with contextlib.suppress(OSError):
        if project.repository is not None:
            tidy(project.repository._replace(root=project.main))
            _tidy_saves(project, project.repository)
            remove_stale_maintenance_lock(project.repository.common_dir)
        for home in registries(project):
            if home.directory.is_dir():
                home.tidy()


def _tidy_saves(project: Project, repository: Repository) -> None:
    """Remove what killed saves have left in the object directory of the repository."""
    objects, registrations = repository.common_dir / "objects", repository.common_dir / "worktrees"
    if not (left := owners(objects)):
        return
    unfinished = {record.id for home in registries(project) for record in home.unfinished()}
    for owner in left:
        session = owner.partition(SUBMODULES)[0]
        is_needed = ids.agent_id_of(session) in unfinished or os.path.lexists(registrations / session)
        if not is_needed and not is_working(objects, owner):
            release(objects, owner)


def name_broken_refs(project: Project) -> None:
    """Say which refs of ours name a commit that is missing or damaged."""
    if project.repository is None:
        return
    try:
        broken = broken_refs(project.git)
    except (OSError, RalphError) as error:
        log.warning(
            "refs.unread",
            f"the refs of ralph-wrap cannot be checked: {error}",
            "to see what git says of them: git -C "
            f"{shlex.quote(os.fspath(project.main))} for-each-ref refs/heads/ralph refs/ralph",
        )
        return
    for ref, problem in broken.items():
        log.warning(
            "ref.broken",
            f"{ref} names commit {problem}: git gc and git log --all fail",
            "its worktree needs it: copy the commit from another clone or a backup, then: ralph-wrap sweep"
            if is_in_use(project.repository.common_dir, ref)
            else f"to delete the ref: {removal_of(project.main, ref)}",
            ref=ref,
        )


def name_unknown_worktrees(project: Project) -> None:
    """Say which worktrees belong to sessions that no record knows, and how to finish each."""
    for found in unknown_worktrees(project):
        log.warning("worktree.unknown", found.message, found.hint(project.git), path=str(found.path))


def resume_deletions(project: Project) -> None:
    """Resume the deletion of removed worktrees, and report foreign files in the trash."""
    for home in registries(project):
        with contextlib.suppress(OSError):
            _empty_trash(home.trash)


def _empty_trash(trash: Path) -> None:
    """Resume interrupted deletions, and report foreign files."""
    emptied = empty_trash(trash)
    if emptied.resumed:
        count = len(emptied.resumed)
        log.event(
            "trash.resumed",
            f"resumed in the background: the deletion of {count} removed worktree{'s' if count > 1 else ''}"
            f" in {trash}",
            hint=f"this user cannot delete files that are still there afterwards: ls {trash}",
            paths=list(map(os.fspath, emptied.resumed)),
        )
    for path in emptied.foreign:
        log.warning(
            "trash.foreign",
            f"ralph-wrap did not put {path} there, and leaves it",
            f"to move it away: mv {shlex.quote(str(path))} .",
        )


def kept(swept: Collection[SweptSession]) -> RefusedError | None:
    """Return the error that lists the sessions that are not finished, ``None`` if all are."""
    unfinished = [entry for entry in swept if entry.action in {"kept", "failed"}]
    if not unfinished:
        return None
    hints = dict.fromkeys(line for entry in unfinished if entry.hint for line in lines_of(entry.hint))
    return RefusedError(
        "; ".join(f"{entry.session}: {entry.note}" for entry in unfinished),
        Commands.of(*hints) or "nothing is lost: all unsaved work is still in the worktree",
    )


def _verdict(home: Registry, record: SessionRecord | UnreadableRecord, named: SessionNames) -> Verdict:
    if isinstance(record, UnreadableRecord):
        return Verdict.UNKNOWN
    try:
        return inventory.verdict_on(record, home, named)
    except OSError:
        return Verdict.UNKNOWN


def _adoptable(names: Collection[str], sessions: Sequence[FoundSession]) -> set[str]:
    """Return the agent ids of the sessions that the user names, each one that can be adopted."""
    found = set()
    for name in names:
        session = inventory.select(name, sessions)
        if session is None:
            raise NotFoundError(
                f"no unfinished session has the id {name}", "to list them: ralph-wrap ps --all"
            )
        if session.verdict in {Verdict.LIVE, Verdict.UNKNOWN}:
            raise RefusedError(
                f"session {session.id} is {session.verdict.value}: it cannot be adopted",
                "--adopt is only for foreign sessions",
            )
        found.add(session.id)
    return found


def _finish(
    project: Project,
    home: Registry,
    record: SessionRecord,
    verdict: Verdict,
    shared: SharedFacts,
    cancel: CancelToken,
    *,
    is_adopted: bool,
) -> Iterator[SweptSession]:
    session = record.session
    try:
        claim = take_over(home, record)
        if claim is None:
            if home.has(record.id):
                yield SweptSession(
                    record.id, session, verdict.value, "left", note="another process has its lock now"
                )
            return
        events = claim.directory / "events.jsonl"
        try:
            with current().for_other_session(events, agent_id=record.id, session_id=session):
                outcome = _end(project, claim, shared, cancel, is_adopted=is_adopted)
        finally:
            claim.leave()
    except Exception as error:  # noqa: BLE001 -- one session must not block the others, or the start of a new one
        action = "kept" if isinstance(error, RefusedError) else "failed"
        hint = error.hint if isinstance(error, RalphError) else None
        yield SweptSession(record.id, session, verdict.value, action, note=str(error), hint=hint)
        return
    saved = outcome.saved.branch if outcome and outcome.saved else None
    if outcome and outcome.kept and not outcome.asked:
        yield SweptSession(record.id, session, verdict.value, "kept", saved, outcome.kept, outcome.way_out)
    else:
        note = outcome.kept if outcome else _missing(project, record)
        yield SweptSession(record.id, session, verdict.value, "finished", saved, note)


def _end(
    project: Project, claim: SessionClaim, shared: SharedFacts, cancel: CancelToken, *, is_adopted: bool
) -> WorktreeOutcome | None:
    """End a dead session whose lock we hold; return the outcome for its worktree.

    Arguments:
        cancel: after a signal, the rest is left to the next sweep.
        is_adopted: the user states that it is dead.

    """
    record = claim.record
    log.event("session.found_dead", f"session {record.session} is dead: finishing it", state=record.state)
    _require_seen(claim, is_adopted=is_adopted)
    survivors = _end_leftovers(claim)
    _name_orphans(claim)
    recovery = SessionRecovery(project, claim.registry, record, shared)
    tree = recovery.worktree()
    if not survivors and not (tree and recovery.keeps_worktree):
        _tear_down(recovery, tree, cancel)
    outcome = recovery.leave(tree, survivors) if tree else None
    if outcome is not None and outcome.later:
        raise RefusedError(str(outcome.kept), try_again_hint(project.root, outcome))
    started = _agent_started(claim)
    if record.drop_empty or not started:
        recovery.drop_unused_branch(tree, outcome)
    if not started and project.repository is not None and record.id in shared.owners:
        give_back.give_back(project, record)
    recovery.bring_out(outcome)
    report = recovery.write_report(outcome)
    if tree is None and (missing := _missing(project, record)):
        log.warning("worktree.missing", message=missing)
    if started or (outcome is not None and outcome.kept):
        claim.release()
    else:  # until the hand-over, the planned branch may be one of the user
        claim.release(iteration=0, branch=None if record.state == "starting" else record.branch)
    if report is not None and report.ended_by == "killed":
        _notify(project, report)
    unused = drop_command(report) if report else ""
    log.event("session.swept", _summary(record, outcome), **({"hint": _TO_DROP + unused} if unused else {}))
    return outcome


def _tear_down(recovery: SessionRecovery, tree: LinkedWorktree | None, cancel: CancelToken) -> None:
    """Run the teardown that a dead session owes.

    Raises:
        RalphError: a signal came. The next sweep runs it, and finishes the session.

    """
    ended = recovery.tear_down(tree, cancel)
    if ended is not None and ended.result == LATER:
        raise RalphError("a signal came before its teardown had ended", TO_SWEEP)


def _notify(project: Project, report: SessionReport) -> None:
    """Tell a person that a killed session is finished, as the session itself would have told of its end."""
    try:
        settings = of_project(project.main, project.environ, "notify", "notify_on")
    except (RalphError, OSError) as error:
        log.event("notify.skipped", reason=str(error), notified="recovered")
        return
    notify(settings, project, notification_of(report))


def _missing(project: Project, record: SessionRecord) -> str | None:
    """Return a message if the worktree of a running agent is gone, and ralph-wrap has not removed it."""
    if record.state != "running" or record.branch is None:
        return None
    path = project.root / WORKTREES / record.worktree_name
    return f"its worktree was moved or replaced: nothing is at {path}, and git has forgotten it"


def _require_seen(claim: SessionClaim, *, is_adopted: bool) -> None:
    """Check that we can see all processes that a dead session may have left, or that they are gone.

    Arguments:
        is_adopted: the user states that those are gone which no lock would show.

    Raises:
        RefusedError: they may run where we cannot see them.
        OSError: the check failed.

    """
    record = claim.record
    if record.boot_id != liveness.boot_id() or liveness.sees(record.pid_namespace):
        return
    if liveness.is_of_host(record.pid_namespace):
        raise RefusedError(
            "it ran on the host, whose processes are not visible here", "on the host: ralph-wrap sweep"
        )
    if claim.registry.has_container(record):
        raise RefusedError(
            "its container is still running, and the processes in it are not visible here",
            "in the other container: ralph-wrap sweep; or stop this container",
        )
    if record.agents_unseen and not is_adopted:
        raise RefusedError(
            "its files in .ralph/run were deleted while its agent ran, perhaps in another container, and"
            " nothing here shows whether that has ended",
            Commands.of(
                "in the other container: ralph-wrap sweep",
                f"if it is gone: ralph-wrap sweep --adopt {record.id}",
            ),
        )


def _end_leftovers(claim: SessionClaim) -> tuple[int, ...]:
    """End the processes of a dead session; return the pids of those that survive SIGKILL.

    Raises:
        RefusedError: a process holds the agents' lock, but has none of our variables, or is not visible here.
        OSError: the check failed.

    """
    leftovers = process_tree.ProcessTree(whole_process=False, session=claim.record.session, dead=True)
    deadline = time.monotonic() + _LAST_BREATH
    while True:
        ended = leftovers.end(_GRACE, NEVER, signalled=False)
        if ended.signalled:
            log.event("processes.ended", count=ended.signalled)
        if ended.survivors or not claim.has_agents():
            return ended.survivors
        # A process that is dying, or is between fork(2) and execve(2), has the lock but shows no environment.
        if time.monotonic() >= deadline:
            held = claim.agents()
            if held.holders:  # without our variables; any process can lock a file, so it is only named
                raise RefusedError(f"a process of its agent may still run: {held.sentence}", held.hint)
            raise RefusedError(
                "processes of its agent still run, but are not visible here, perhaps in another container",
                "in the other container: ralph-wrap sweep; or stop this container",
            )
        time.sleep(_TICK)


def _name_orphans(claim: SessionClaim) -> None:
    """Name the processes in this container that the dead session may have left, if nothing proves that.

    An agent that leaves its environment, descriptors and parent behind looks like a daemon of the user. On a
    host there are too many of those.
    """
    if liveness.is_of_host(liveness.pid_namespace()):
        return
    session, named = claim.record.session, SessionNames()

    def awaits_sweep(other: str) -> bool:
        agent_id = other.rpartition("-")[2]
        return other != session and claim.registry.has(agent_id) and agent_id not in named

    pids = process_tree.orphans_since(ids.started(session).timestamp(), awaits_sweep)
    if not pids:
        return
    names = ", ".join(f"{pid} ({_name_of(pid)})" for pid in pids)
    numbers = " ".join(map(str, pids))
    log.warning(
        "processes.unknown",
        f"these processes began after session {session} and lost their parent: {names};"
        " perhaps its agent left them",
        f"to look at them: ps -fp {','.join(map(str, pids))}; to end them: kill {numbers}",
        pids=pids,
    )


def _name_of(pid: int) -> str:
    try:
        return one_line(process_table.name(pid))
    except OSError:
        return "ended"


def _agent_started(claim: SessionClaim) -> bool:
    """Return whether the event log has a start of its agent; without one its unused branch may go."""
    if claim.record.state == "starting":
        return False
    if claim.record.agents_unseen:  # its event log was deleted, too
        return True
    try:
        events = files.read_beginning(claim.directory / "events.jsonl", _EVENTS_READ)
    except OSError:
        return True
    return b'"event": "agent.started"' in events


def _summary(record: SessionRecord, outcome: WorktreeOutcome | None) -> str:
    words = f"session {record.session} is finished"
    if outcome and outcome.saved and outcome.saved.branch:
        words += f": saved on {outcome.saved.branch}"
    if outcome and outcome.kept:
        words += f"; worktree kept ({outcome.kept})"
    return words
