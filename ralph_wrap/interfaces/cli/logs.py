"""``ralph-wrap logs``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.commands import logs as use_case
from ralph_wrap.interfaces.cli import completion
from ralph_wrap.interfaces.cli.boundary import become_owner, boundary
from ralph_wrap.interfaces.cli.options import ID, Directory
from ralph_wrap.state.advice import advice_for
from ralph_wrap.state.how_ended import how_ended
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.state.project import find_project
from ralph_wrap.system.log import get_logger

log = get_logger()


def logs(
    session: Annotated[str, typer.Argument(metavar="ID", help=ID, autocompletion=completion.sessions)],
    directory: Directory = Path(),
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Print new output until the session ends; end with its status."),
    ] = False,
    events: Annotated[
        bool, typer.Option("--events", help="Print the event log: one JSON object per line.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print the agent's stream byte for byte.")] = False,
) -> None:
    """Print the agent's output, or the event log of a session."""
    with boundary("logs", json=False, project=directory):
        environ = become_owner(directory)
        project = find_project(directory, environ)
        shown = use_case.logs(project, session, events=events, follow=follow, descriptor=1, raw=raw)
        if follow and shown.verdict is Verdict.ORPHAN:
            log.warning(
                "session.found_dead",
                f"session {shown.name} was killed",
                advice_for(shown.verdict, shown.id),
            )
        status = how_ended(shown).exit_status if follow else 0
    raise typer.Exit(status)
