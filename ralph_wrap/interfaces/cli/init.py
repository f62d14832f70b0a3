"""``ralph-wrap init``: read the command line, and become the small program that PID 1 stays."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from ralph_wrap.config.options import INIT_RESUME, STOP_TIMEOUT
from ralph_wrap.config.parsers import duration
from ralph_wrap.interfaces.init.wait import HELD_BACK


def init(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[--] COMMAND…", help="A command to run; init ends with its exit status."),
    ] = None,
    stop_timeout: Annotated[
        str,
        typer.Option(metavar=STOP_TIMEOUT.metavar, envvar=[*STOP_TIMEOUT.variables], help=STOP_TIMEOUT.help),
    ] = "8s",  # docker kills 10 s after its TERM (docker stop --time)
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
        seconds = duration(stop_timeout)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--stop-timeout") from None
    # Typer would stay in the memory of PID 1. -P: no module comes from the working directory.
    words = ("-P", "-X", "utf8", "-m", "ralph_wrap.interfaces.init")
    argv = [sys.executable, *words, str(seconds), "yes" if resume else "no", *(command or ())]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
    try:
        os.execv(sys.executable, argv)  # noqa: S606 -- no shell
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
