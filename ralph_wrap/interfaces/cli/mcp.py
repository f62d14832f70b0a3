"""``ralph-wrap mcp``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.interfaces.cli.boundary import become_owner, boundary, needs_extra
from ralph_wrap.interfaces.cli.options import Directory


def mcp(
    session: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            envvar="RALPH_SESSION_ID",
            help="The session that enters and exits; any name. (default: a new name for each server)",
        ),
    ] = "",
    project: Directory = Path(),
) -> None:
    """Serve agents the tools to enter and exit a worktree (Model Context Protocol, stdin and stdout)."""
    with boundary("mcp", json=False, project=project):
        with needs_extra("mcp"):  # the SDK may not be installed
            from ralph_wrap.interfaces.mcp import server  # noqa: PLC0415
            from ralph_wrap.interfaces.mcp.tools import ToolCaller  # noqa: PLC0415
        made = server.make_server()
        environ = become_owner(project)
        name = session or f"mcp-{os.urandom(4).hex()}"
        server.serve(made, ToolCaller(project.absolute(), Path.cwd(), name, environ))
