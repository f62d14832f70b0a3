"""``ralph-wrap wait``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.commands import wait as use_case
from ralph_wrap.interfaces.cli import completion
from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary, print_error
from ralph_wrap.interfaces.cli.options import IDS, Directory, Json
from ralph_wrap.state.project import find_project
from ralph_wrap.state.wording import ending_in_words


def wait(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help=IDS, autocompletion=completion.sessions)],
    directory: Directory = Path(),
    json: Json = False,
) -> None:
    """Wait until sessions have ended, and end with their exit status: of several, the first that is not 0."""
    with boundary("wait", json=json, project=directory):
        environ = become_owner(directory)
        rows = []
        for row, error in use_case.wait(find_project(directory, environ), ids):
            rows.append(row)
            if error is not None:
                print_error(error)
            elif not json:
                typer.echo(f"{row.session}  {ending_in_words(row.ended_by or '')}")
        if json:
            answer("wait", [row._asdict() for row in rows])
    raise typer.Exit(next((row.exit_status for row in rows if row.exit_status), 0))
