"""``ralph-wrap rm``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.interfaces.cli import completion
from ralph_wrap.interfaces.cli.boundary import become_owner, boundary, conclude, open_project
from ralph_wrap.interfaces.cli.options import IDS, Directory, Json


def rm(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help=IDS, autocompletion=completion.sessions)],
    directory: Directory = Path(),
    json: Json = False,
) -> None:
    """End background sessions, save their work and remove their worktrees. Branches stay."""
    from ralph_wrap.commands import rm as use_case  # noqa: PLC0415
    from ralph_wrap.commands import sweep as sweeping  # noqa: PLC0415
    from ralph_wrap.commands.stop import stop  # noqa: PLC0415
    from ralph_wrap.state.stop_request import StopMode  # noqa: PLC0415

    with boundary("rm", json=json, project=directory) as log:
        environ = become_owner(directory, log)
        project = open_project(directory, environ, log)
        reachable, foreign = use_case.without_foreign(project, ids)
        stopped, problem = stop(project, reachable, StopMode.SOON, log)
        orphans = any(ended.outcome == "orphan" for ended in stopped)
        unfinished = sweeping.kept(sweeping.sweep(project, log=log)) if orphans else None
        names = [ended.session or ended.id for ended in stopped if ended.outcome != "unknown"]
        removed, failure = use_case.remove_all(project, names, log)
        data = [session._asdict() for session in removed]
        if not json:
            for session in removed:
                typer.echo(
                    "  ".join(
                        word
                        for word in (session.session, "removed" if session.removed else "gone", session.saved)
                        if word
                    )
                )
        conclude("rm", data, unfinished or failure or problem or foreign, json=json)
