"""``ralph-wrap init`` for ``--help`` and for mistakes; a correct call starts PID 1 without this module."""

from __future__ import annotations

from typing import Annotated

import typer

from ralph_wrap.config.options import INIT_RESUME, STOP_TIMEOUT
from ralph_wrap.interfaces import init as pid1


def init(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[--] COMMAND…", help="A command to run; init ends with its exit status."),
    ] = None,
    stop_timeout: Annotated[
        str,
        typer.Option(metavar=STOP_TIMEOUT.metavar, envvar=[*STOP_TIMEOUT.variables], help=STOP_TIMEOUT.help),
    ] = pid1.STOP_TIMEOUT,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            envvar=INIT_RESUME.variables[0],
            help=INIT_RESUME.help,
        ),
    ] = False,
) -> None:
    """Be PID 1 of a container: reap zombies, and end every session before the container ends.

    TERM and INT end it. On HUP it looks for dead sessions again.
    """
    try:
        seconds = pid1.duration(stop_timeout)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--stop-timeout") from None
    raise typer.Exit(pid1.run(pid1.InitOptions(seconds, tuple(command or ()), resume)))
