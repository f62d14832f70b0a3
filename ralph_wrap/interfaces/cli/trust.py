"""``ralph-wrap trust``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.config import of_project
from ralph_wrap.config import trust as approvals
from ralph_wrap.config.repository_trust import trust_root
from ralph_wrap.config.trust import REPOSITORY, unapproved
from ralph_wrap.errors import UsageError
from ralph_wrap.interfaces.cli.approval_prompt import (
    Approvable,
    approve,
    decided_by,
    lines_of_repository,
    removed,
    shown,
)
from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary
from ralph_wrap.interfaces.cli.options import Directory, Json
from ralph_wrap.state.project import Project, find_project
from ralph_wrap.system.log import one_line
from ralph_wrap.system.signals import SignalHandlers


def trust(
    directory: Directory = Path(),
    show: Annotated[
        bool, typer.Option("--show", help="Only print the settings, and whether they are approved.")
    ] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Delete the approval.")] = False,
    json: Json = False,
) -> None:
    """Approve PROMPT.md, what .ralph/config.toml decides beyond limits, and what .git/config makes git run.

    A change needs a new approval. On a terminal you see the settings first and answer y or n. The approval is
    stored outside the project.
    """
    with boundary("trust", json=json, project=directory), SignalHandlers() as signals:
        if show and revoke:
            raise UsageError("--show and --revoke exclude each other", "give one of them")
        environ = become_owner(directory)
        project = find_project(directory, environ)
        wanted = decided_by(project, of_project(project.main, environ).stated)
        repository = lines_of_repository(project)
        missing = approvals.unapproved(project.main, wanted.commands, environ)
        asked = [found for found in (wanted if wanted.commands or missing else None, repository) if found]
        if revoke:
            _revoke(project, environ)
        elif not show:
            for found in asked:
                if not approvals.is_approved(found.root, found.commands, environ, found.purpose):
                    approve(project, found, signals)
        approved = {
            found.purpose: approvals.is_approved(found.root, found.commands, environ, found.purpose)
            for found in asked
        }
        implied = approvals.implied(environ)
        if json:
            data = {"project": os.fspath(project.main), "commands": dict(wanted.commands)}
            data |= {"repository": repository.commands if repository else {}}
            verdicts = {"approved": approved.get(approvals.COMMANDS, True)}
            verdicts |= {"repository_approved": approved.get(approvals.REPOSITORY, True)}
            answer("trust", {**data, **verdicts, "implied": implied})
            return
        typer.echo("\n".join(_rows(asked, approved, implied, environ) or ["nothing to approve"]))


def _revoke(project: Project, environ: Mapping[str, str]) -> None:
    """Delete the approvals of the project and of its repository."""
    approvals.revoke(project.main, environ)
    if project.repository:
        for purpose in (approvals.REPOSITORY, approvals.PUSH):
            approvals.revoke(trust_root(project.repository), environ, purpose)


def _rows(
    asked: Sequence[Approvable], approved: Mapping[str, bool], implied: str | None, environ: Mapping[str, str]
) -> list[str]:
    """Return the values with the verdict on them; the file is named if it is not the project's own."""
    rows = []
    for found in asked:
        rows += [f"{one_line(os.fspath(found.source))}:"] if found.purpose == REPOSITORY else []
        verdict = "approved" if approved[found.purpose] else "not approved"
        missing = unapproved(found.root, found.commands, environ, found.purpose)
        rows += [*shown(found.commands), *removed(missing), f"approved: {implied}" if implied else verdict]
    return rows
