"""``ralph-wrap init``, for those who ask for help or make a mistake; the rest does not come here."""

from __future__ import annotations

from typing import Annotated

import typer

from ralph_wrap.interfaces import init as pid1


def init(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[--] COMMAND…", help="Run this, and end with its status.")
    ] = None,
    stop_timeout: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            envvar="RALPH_WRAP_STOP_TIMEOUT",
            help="Wait so long for the sessions to end; less than docker waits.",
        ),
    ] = pid1.STOP_TIMEOUT,
) -> None:
    """Be PID 1 of a container: reap zombies, and end every session before the container ends.

    TERM and INT end it; HUP has it look for dead sessions again.
    """
    try:
        seconds = pid1.duration(stop_timeout)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--stop-timeout") from None
    raise typer.Exit(pid1.run(pid1.Options(seconds, tuple(command or ()))))
