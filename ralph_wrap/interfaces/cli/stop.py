"""``ralph-wrap stop``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.commands import stop as use_case
from ralph_wrap.commands.stop import StoppedSession
from ralph_wrap.errors import RalphError, UsageError
from ralph_wrap.interfaces.cli import completion
from ralph_wrap.interfaces.cli.boundary import become_owner, boundary, conclude
from ralph_wrap.interfaces.cli.options import IDS, Directory, Json
from ralph_wrap.state.project import find_project
from ralph_wrap.state.stop_request import StopMode
from ralph_wrap.state.wording import outcome_in_words


def stop(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]…", help=IDS, autocompletion=completion.unfinished)
    ] = None,
    directory: Directory = Path(),
    every: Annotated[bool, typer.Option("--all", help="Every session of the project.")] = False,
    after_iteration: Annotated[
        bool, typer.Option("--after-iteration", help="Let the running iteration end by itself.")
    ] = False,
    now: Annotated[
        bool, typer.Option("--now", help="Kill the agent at once; the session still saves its work.")
    ] = False,
    json: Json = False,
) -> None:
    """Ask sessions to end, in any container or on the host, and wait until they have ended."""
    with boundary("stop", json=json, project=directory):
        _check(ids or [], every=every, both_modes=after_iteration and now)
        mode = StopMode.AFTER_ITERATION if after_iteration else StopMode.NOW if now else StopMode.SOON
        environ = become_owner(directory)
        project = find_project(directory, environ)
        stopped, problem = use_case.stop(project, None if every else ids, mode)
        _show(stopped, problem, json=json)


def _check(ids: list[str], *, every: bool, both_modes: bool) -> None:
    if bool(ids) == every:
        raise UsageError("either ids or --all must be given", "to list them: ralph-wrap ps")
    if both_modes:
        raise UsageError("--after-iteration and --now exclude each other", "give one of them")


def _show(stopped: list[StoppedSession], problem: RalphError | None, *, json: bool) -> None:
    data = [session._asdict() for session in stopped]
    if not json:
        for session in stopped:
            typer.echo(f"{session.session or session.id}  {outcome_in_words(session.outcome)}")
    conclude("stop", data, problem, json=json)
