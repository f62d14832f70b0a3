"""What the user can do about a session that is not finished."""

from __future__ import annotations

from ralph_wrap.state import inventory
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.state.project import Project
from ralph_wrap.state.record import SessionRecord
from ralph_wrap.system.log import Commands
from ralph_wrap.system.text import command


def advice_for(verdict: Verdict, agent_id: str) -> str:
    """Return the hint for a session that is not finished and is in the way; empty for a finished one."""
    stop = command("ralph-wrap", "stop", agent_id)
    return {
        Verdict.LIVE: stop,
        Verdict.ORPHAN: "to save its work: ralph-wrap sweep",
        Verdict.FOREIGN: Commands.of(
            f"on its machine: {stop}",
            f"if you know that it is dead: {command('ralph-wrap', 'sweep', '--adopt', agent_id)}",
        ),
        Verdict.UNKNOWN: "to see the reason: ralph-wrap ps",
        Verdict.FINISHED: "",
    }[verdict]


def to_go_on(project: Project, record: SessionRecord, resume: str) -> Commands:
    """Return the hint to go on with a session that has ended.

    If its worktree is still there, as after ``spawn``, its branch is checked out in it until ``rm``.

    Arguments:
        resume: the command line that goes on with it.

    """
    if record.branch is None or inventory.workspace_of(record, project) is None:
        return Commands.of(f"to go on with it: {resume}")
    return Commands.of(
        f"to save its worktree and remove it: {command('ralph-wrap', 'rm', record.id)}",
        f"then, to go on with it: {resume}",
    )
