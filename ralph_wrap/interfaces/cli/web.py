"""``ralph-wrap web``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.interfaces.cli.boundary import become_owner, boundary, open_project
from ralph_wrap.interfaces.cli.options import Directory
from ralph_wrap.interfaces.cli.tampering import warn_of_tampering
from ralph_wrap.interfaces.web import server


def web(
    directory: Directory = Path(),
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 takes a free one.")
    ] = 0,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show no buttons; the page can change nothing.")
    ] = False,
) -> None:
    """Review, merge, apply, drop, resume, tell and stop in a browser on this machine. Prints the address."""
    with boundary("web", json=False, project=directory):
        server.load()
        environ = become_owner(directory)
        warn_of_tampering(directory, environ)
        project = open_project(directory, environ)
        server.serve(project, port, read_only=read_only, announce=typer.echo)
