"""``ralph-wrap trust``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ralph_wrap.errors import UsageError
from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary
from ralph_wrap.interfaces.cli.options import Directory
from ralph_wrap.system.log import on_stderr, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralph_wrap.interfaces.cli.approval_prompt import Approvable


def trust(
    directory: Directory = Path(),
    show: Annotated[
        bool, typer.Option("--show", help="Only print the commands, and whether they are approved.")
    ] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Delete the approval.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Approve the commands in .ralph/config.toml, and what .git/config makes git run.

    A changed command needs a new approval. On a terminal you see the commands first and answer y or n.
    The approval is stored outside the project.
    """
    from ralph_wrap.config import of_project  # noqa: PLC0415
    from ralph_wrap.config import trust as approvals  # noqa: PLC0415
    from ralph_wrap.interfaces.cli.approval_prompt import (  # noqa: PLC0415
        approve,
        commands_of,
        lines_of_repository,
    )
    from ralph_wrap.state.project import find_project  # noqa: PLC0415 -- not for --help
    from ralph_wrap.system.signals import SignalHandlers  # noqa: PLC0415

    with boundary("trust", json=json, project=directory), SignalHandlers() as signals:
        if show and revoke:
            raise UsageError("--show and --revoke exclude each other", "give one of them")
        environ = become_owner(directory, on_stderr(os.environ))
        project = find_project(directory, environ)
        wanted = commands_of(project, of_project(project.root).commands)
        repository = lines_of_repository(project)
        asked = [found for found in (wanted if wanted.commands else None, repository) if found]
        if revoke:
            for found in (wanted, repository):
                if found:
                    approvals.revoke(found.root, environ, found.purpose)
        elif not show:
            for found in asked:
                approve(project, found, signals)
        approved = {
            found.purpose: approvals.is_approved(found.root, found.commands, environ, found.purpose)
            for found in asked
        }
        implied = approvals.implied(environ)
        if json:
            data = {"project": os.fspath(project.root), "commands": wanted.commands}
            data |= {"repository": repository.commands if repository else {}}
            verdicts = {"approved": approved.get(approvals.COMMANDS, True)}
            verdicts |= {"repository_approved": approved.get(approvals.REPOSITORY, True)}
            answer("trust", {**data, **verdicts, "implied": implied})
            return
        typer.echo("\n".join(_rows(asked, approved, implied) or ["no commands"]))


def _rows(asked: Sequence[Approvable], approved: Mapping[str, bool], implied: str | None) -> list[str]:
    """Return the commands with the verdict on them; the file is named if it is not the project's own."""
    from ralph_wrap.config.trust import REPOSITORY  # noqa: PLC0415
    from ralph_wrap.interfaces.cli.approval_prompt import shown  # noqa: PLC0415 -- not for --help

    rows = []
    for found in asked:
        rows += [f"{one_line(os.fspath(found.source))}:"] if found.purpose == REPOSITORY else []
        verdict = "approved" if approved[found.purpose] else "not approved"
        rows += [*shown(found.commands), f"approved: {implied}" if implied else verdict]
    return rows
