"""``ralph-wrap fetch``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.commands import fetch as use_case
from ralph_wrap.commands.fetch import FetchedSession
from ralph_wrap.commands.fetch import fetch as bring
from ralph_wrap.config import of_project
from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary, print_lines
from ralph_wrap.interfaces.cli.options import Directory, Json
from ralph_wrap.state.project import Project, find_project
from ralph_wrap.system.log import get_logger

log = get_logger()


def fetch(
    directory: Directory = Path(),
    remote: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The remote; by default that of the configuration, or origin."),
    ] = None,
    json: Json = False,
) -> None:
    """Bring the sessions of other machines from a remote; then review, diff, merge and resume have them.

    A branch of yours moves only if it loses no commit. The answer names each session that was left.
    """
    with boundary("fetch", json=json, project=directory):
        project = find_project(directory, become_owner(directory))
        name = remote or of_project(project.main, project.environ, "remote").remote or "origin"
        found = use_case.fetch(project, name)
        if json:
            answer("fetch", [entry._asdict() for entry in found])
            return
        print_lines(
            ["  ".join(filter(None, _words(entry))) for entry in found],
            f"{name} has no sessions; a session goes there with: ralph-wrap run --remote {name}",
        )


def fetch_first(project: Project, remote: str | None, *, again: Collection[str] = ()) -> list[FetchedSession]:
    """Bring the sessions of the remote that the user has typed, and warn of each that was left.

    Arguments:
        remote: its name; ``None`` if the user has typed none.
        again: what the user names: these sessions come even if they were dropped here.

    """
    if remote is None:
        return []
    found = bring(project, remote, again=again)
    for entry in found:
        if entry.action == "left":
            log.warning("session.left", f"session {entry.id} of {remote} was left: {entry.note}")
    return found


def _words(entry: FetchedSession) -> list[str]:
    state = f"{entry.state} on {entry.node}" if entry.node and entry.state == "running" else entry.state
    return [entry.id, entry.title, state, entry.action, entry.note]
