"""``ralph-wrap fetch``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary, print_lines
from ralph_wrap.interfaces.cli.options import Directory, Json

if TYPE_CHECKING:
    from collections.abc import Collection

    from ralph_wrap.commands.fetch import FetchedSession
    from ralph_wrap.state.project import Project
    from ralph_wrap.system.log import Log


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
    from ralph_wrap.commands import fetch as use_case  # noqa: PLC0415 -- not for --help
    from ralph_wrap.config import of_project  # noqa: PLC0415
    from ralph_wrap.state.project import find_project  # noqa: PLC0415

    with boundary("fetch", json=json, project=directory) as log:
        project = find_project(directory, become_owner(directory, log, "ralph_wrap.commands.fetch"))
        name = remote or of_project(project.main, project.environ, "remote").remote or "origin"
        found = use_case.fetch(project, name, log)
        if json:
            answer("fetch", [entry._asdict() for entry in found])
            return
        print_lines(
            ["  ".join(filter(None, _words(entry))) for entry in found],
            f"{name} has no sessions; a session goes there with: ralph-wrap run --remote {name}",
        )


def fetch_first(
    project: Project, remote: str | None, log: Log, *, again: Collection[str] = ()
) -> list[FetchedSession]:
    """Bring the sessions of the remote that the user has typed, and warn of each that was left.

    Arguments:
        remote: its name; ``None`` if the user has typed none.
        again: what the user names: these sessions come even if they were dropped here.

    """
    from ralph_wrap.commands.fetch import fetch as bring  # noqa: PLC0415 -- not for --help

    if remote is None:
        return []
    found = bring(project, remote, log, again=again)
    for entry in found:
        if entry.action == "left":
            log.warning("session.left", f"session {entry.id} of {remote} was left: {entry.note}")
    return found


def _words(entry: FetchedSession) -> list[str]:
    state = f"{entry.state} on {entry.node}" if entry.node and entry.state == "running" else entry.state
    return [entry.id, entry.title, state, entry.action, entry.note]
