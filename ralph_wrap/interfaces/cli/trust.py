"""``ralph-wrap trust``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.errors import UsageError
from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary
from ralph_wrap.interfaces.cli.options import Directory
from ralph_wrap.system.log import on_stderr


def trust(
    directory: Directory = Path(),
    show: Annotated[
        bool, typer.Option("--show", help="Only print the commands, and whether they are approved.")
    ] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Delete the approval.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Approve the commands in .ralph/config.toml. A changed command needs a new approval.

    On a terminal you see the commands first and answer y or n. The approval is stored outside the project.
    """
    from ralph_wrap.config import of_project  # noqa: PLC0415
    from ralph_wrap.config import trust as approvals  # noqa: PLC0415
    from ralph_wrap.interfaces.cli.approval_prompt import approve, shown  # noqa: PLC0415
    from ralph_wrap.state.project import find_project  # noqa: PLC0415 -- not for --help
    from ralph_wrap.system.signals import SignalHandlers  # noqa: PLC0415

    with boundary("trust", json=json, project=directory), SignalHandlers() as signals:
        if show and revoke:
            raise UsageError("--show and --revoke exclude each other", "give one of them")
        environ = become_owner(directory, on_stderr(os.environ))
        project = find_project(directory, environ)
        commands = of_project(project.root).commands
        if revoke:
            approvals.revoke(project.root, environ)
        elif commands and not show:
            approve(project, commands, signals)
        approved = not commands or approvals.is_approved(project.root, commands, environ)
        implied = approvals.implied(environ)
        if json:
            data = {"project": os.fspath(project.root), "commands": commands}
            answer("trust", {**data, "approved": approved, "implied": implied})
            return
        verdict = f"approved: {implied}" if implied else "approved" if approved else "not approved"
        typer.echo("\n".join([*shown(commands), verdict if commands else "no commands"]))
