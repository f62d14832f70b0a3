"""``ralph-wrap pool``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.commands.pool import ProjectPool
from ralph_wrap.config import of_project
from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary, print_lines
from ralph_wrap.interfaces.cli.options import Directory, Json
from ralph_wrap.state.project import find_project
from ralph_wrap.system.log import get_logger

log = get_logger()


def pool(
    directory: Directory = Path(),
    fill: Annotated[bool, typer.Option("--fill", help="Fill the pool now.")] = False,
    json: Json = False,
) -> None:
    """List the warm worktrees in which sessions start. With pool = N in .ralph/config.toml there are N."""
    with boundary("pool", json=json, project=directory):
        environ = become_owner(directory)
        project = find_project(directory, environ)
        project_pool = ProjectPool.of(project, of_project(project.main, project.environ, "pool_keep"))
        if fill and not project_pool.fill():
            log.warning(
                "pool.busy", "another process is filling the pool", "to see its progress: ralph-wrap pool"
            )
        entries = project_pool.entries()
        if json:
            answer("pool", [entry._asdict() for entry in entries])
            return
        lines = [f"{entry.path}  {'ready' if entry.ready else 'not ready'}" for entry in entries]
        print_lines(lines, "no warm worktrees")
