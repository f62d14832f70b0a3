"""Save and remove the worktree of a session that has ended and still has one."""

from __future__ import annotations

from ralph_wrap.errors import RalphError, RefusedError
from ralph_wrap.session.recovery import SessionRecovery, SharedFacts
from ralph_wrap.session.worktree_end import try_again_hint
from ralph_wrap.state.project import Project
from ralph_wrap.state.registry import Registry, SessionRecord
from ralph_wrap.system import files
from ralph_wrap.system.cancel import NEVER
from ralph_wrap.system.files import lock_holder
from ralph_wrap.system.liveness import SessionNames
from ralph_wrap.system.log import current, get_logger
from ralph_wrap.system.text import command
from ralph_wrap.worktree.remove import WorktreeOutcome
from ralph_wrap.worktree.way_out import remaining_ways

log = get_logger()


def remove_kept(project: Project, home: Registry, record: SessionRecord) -> WorktreeOutcome | None:
    """Save and remove the worktree of a session that has ended; return ``None`` if it has none any more.

    Arguments:
        home: the registry of the session.
        record: of the session.

    Raises:
        RefusedError: the worktree cannot be saved in full, or a process runs the session; it stays.
        RalphError: another process removes it at this moment.

    """
    if not home.has(record.id) and record.id in SessionNames():
        raise RefusedError(
            f"a process runs session {record.id}, although its record is gone: its worktree stays",
            f"to see the process: ps -C ralph/{record.id}",
        )
    directory = home.sessions / record.session
    lock = files.try_lock(directory)
    if lock is None:
        held = lock_holder.held_lock(directory)
        raise RalphError(
            f"another process removes the worktree of session {record.session}: {held.sentence}", held.hint
        )
    events = directory / "events.jsonl"
    try:
        with current().for_other_session(events, agent_id=record.id, session_id=record.session):
            recovery = SessionRecovery(project, home, record, SharedFacts(project))
            tree = recovery.worktree()
            if tree is None:
                log.event("worktree.missing", f"session {record.session} has no worktree (any more)")
                return None
            recovery.tear_down(tree, NEVER)
            outcome = recovery.leave(tree, for_good=True)
            recovery.bring_out(outcome)
            recovery.write_report(outcome)
    finally:
        lock.release()
    if outcome.kept:
        raise RefusedError(
            f"worktree of session {record.session} kept: {outcome.kept}",
            try_again_hint(project.root, outcome, command("ralph-wrap", "rm", record.id))
            or outcome.way_out
            or remaining_ways(tree, project.root, record.id),
        )
    return outcome
