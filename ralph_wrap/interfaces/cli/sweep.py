"""``ralph-wrap sweep``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.commands import sweep as use_case
from ralph_wrap.commands.merge import undo_killed
from ralph_wrap.commands.pool import ProjectPool
from ralph_wrap.commands.sweep import SweptSession
from ralph_wrap.config import OnOrphans, of_project
from ralph_wrap.errors import RalphError
from ralph_wrap.interfaces.cli import completion
from ralph_wrap.interfaces.cli.boundary import become_owner, boundary, conclude, open_project, remark
from ralph_wrap.interfaces.cli.clean import clean_beside
from ralph_wrap.interfaces.cli.options import Directory, Json
from ralph_wrap.interfaces.cli.tampering import warn_of_tampering
from ralph_wrap.interfaces.init.child import AT_START
from ralph_wrap.state.project import Project, registries
from ralph_wrap.state.report import SessionReport
from ralph_wrap.state.report import read as read_report
from ralph_wrap.state.wording import state_of
from ralph_wrap.system.log import get_logger

log = get_logger()


def sweep(
    directory: Directory = Path(),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what a sweep would do.")] = False,
    adopt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="A foreign session, or one without a record, that you know is dead; can be repeated.",
            autocompletion=completion.unfinished,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Finish dead sessions: save their work, remove their worktrees, release their ids."""
    with boundary("sweep", json=json, project=directory):
        environ = become_owner(directory)
        project = open_project(directory, environ)
        at_start = (
            of_project(project.main, environ, "orphans", "pool_keep") if os.environ.get(AT_START) else None
        )
        dry_run = dry_run or (at_start is not None and at_start.orphans is OnOrphans.REPORT)
        swept = use_case.sweep(project, dry_run=dry_run, adopted=adopt or ())
        use_case.name_broken_refs(project)
        use_case.name_unknown_worktrees(project)
        if not dry_run:
            undo_killed(project)
            clean_beside(project)
        if at_start is not None and at_start.pool:
            ProjectPool.of(project, at_start).fill()
        warn_of_tampering(directory, environ)  # last: no process of a dead session writes any more
        _show(project, swept, use_case.kept(swept), json=json)


def _show(project: Project, swept: Sequence[SweptSession], error: RalphError | None, *, json: bool) -> None:
    data = [entry._asdict() for entry in swept]
    if not json:
        for entry in swept:
            state = _state(project, entry)
            words = [entry.session or entry.id, state, entry.action, entry.saved, entry.note]
            typer.echo("  ".join(word for word in words if word))
            if entry.hint and entry.action == "left":
                log.warning(
                    "session.left",
                    f"session {entry.session or entry.id} is {state} and was not touched",
                    entry.hint,
                )
        if not swept and not os.environ.get(AT_START):
            remark("no dead sessions")
    conclude("sweep", data, error, json=json)


def _state(project: Project, entry: SweptSession) -> str | None:
    """Return the state of a session before the sweep, in words.

    One that has written its report, and left its worktree to the next start, has not crashed.
    """
    for home in registries(project) if entry.session else ():
        found = read_report(home.sessions / str(entry.session) / "report.json")
        if isinstance(found, SessionReport) and found.ended_by != "killed":
            return state_of(entry.verdict, found.ended_by)
    return state_of(entry.verdict)
