"""``ralph-wrap run`` and ``ralph-wrap spawn``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ralph_wrap.interfaces.cli.options import Directory, flags, with_options
from ralph_wrap.interfaces.cli.start import spawn as start_in_background
from ralph_wrap.interfaces.cli.start import start
from ralph_wrap.system.signals import SignalHandlers

_Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="[--] COMMAND…", help="The agent's command, if --agent is not given."),
]


@with_options
def run(command: _Command = None, *, project: Directory = Path(), **typed: Any) -> None:
    """Run an agent in a loop, in a worktree of its own.

    Each option is also a variable RALPH_WRAP_<OPTION>.
    Except project and job, each is a key in .ralph/config.toml, too.
    """
    with SignalHandlers() as signals:
        status = start(signals, project, flags(typed), tuple(command or ()))
    raise typer.Exit(status)


@with_options
def spawn(command: _Command = None, *, project: Directory = Path(), **typed: Any) -> None:
    """Run an agent in a loop in the background, and print the session's id.

    ralph-wrap logs -f ID follows its output. Its worktree stays, with its work saved, until ralph-wrap rm ID.
    """
    raise typer.Exit(start_in_background(project, flags(typed), tuple(command or ())))
