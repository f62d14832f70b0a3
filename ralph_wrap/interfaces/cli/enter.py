"""``ralph-wrap worktree enter`` and ``worktree exit``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.commands.worktree import enter as use_case
from ralph_wrap.config import load
from ralph_wrap.config.trust import require
from ralph_wrap.errors import UsageError
from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary
from ralph_wrap.interfaces.cli.options import Directory
from ralph_wrap.state.project import find_project

Session = Annotated[
    str,
    typer.Option(
        metavar="NAME", envvar="RALPH_SESSION_ID", help="The session that enters and exits; any name."
    ),
]


def enter(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name of the worktree; its branch is ralph/NAME.")
    ],
    tmux: Annotated[
        bool, typer.Option("--tmux", help="Start a detached tmux session in the worktree.")
    ] = False,
    session: Session = "",
    directory: Directory = Path(),
) -> None:
    """Make a worktree for the session, and enter it until "exit". Prints JSON."""
    with boundary("worktree", json=True):
        environ = become_owner(directory)
        project = find_project(directory, environ)
        settings = load(directory, project.main, Path.cwd(), {}, environ, ())
        require(project.main, settings.stated, environ, lambda key: key in {"ignore", "copy"})
        entered = use_case.enter(
            project,
            name,
            session=_required(session),
            cwd=Path.cwd(),
            ignore=settings.ignore,
            copy=settings.copy,
            in_tmux=tmux,
        )
        answer("worktree", asdict(entered))


def leave(
    action: Annotated[str, typer.Option(metavar="keep|remove", help="Keep the worktree, or remove it.")],
    discard_changes: Annotated[
        bool, typer.Option("--discard-changes", help="Remove the worktree even if work would be lost.")
    ] = False,
    session: Session = "",
    directory: Directory = Path(),
) -> None:
    """Exit the worktree that this session has entered. Prints JSON."""
    with boundary("worktree", json=True):
        environ = become_owner(directory)
        project = find_project(directory, environ)
        exited = use_case.leave(
            project,
            use_case.action_of(action),
            session=_required(session),
            discard_changes=discard_changes,
        )
        answer("worktree", asdict(exited))


def _required(session: str) -> str:
    if not session:
        raise UsageError(
            "the session is not named: neither RALPH_SESSION_ID nor --session is given", "--session ANY-NAME"
        )
    return session
