"""``ralph-wrap run``."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ralph_wrap import config, liveness, user
from ralph_wrap.agents import with_agent
from ralph_wrap.cli.boundary import boundary
from ralph_wrap.errors import RalphError, StoppedError, UsageError
from ralph_wrap.log import on_stderr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralph_wrap.signals import Signals

_NUMBER = "N"
_TIME = "DURATION"

Directory = Annotated[
    Path, typer.Option("--project", "-C", metavar="DIR", envvar="RALPH_WRAP_PROJECT", help="The project.")
]


def run(
    context: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[--] COMMAND…", help="The agent, if it has no known name.")
    ] = None,
    project: Directory = Path(),
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", metavar="NAME", help="A known agent: claude.")
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", "-p", metavar="TEXT", help="What each iteration is given on stdin."),
    ] = None,
    prompt_file: Annotated[
        str | None,
        typer.Option(
            "--prompt-file",
            "-f",
            metavar="FILE",
            help="The same, read anew each time. (default: PROMPT.md if there)",
        ),
    ] = None,
    max_iterations: Annotated[
        str | None,
        typer.Option(
            "--max-iterations", "-n", metavar=_NUMBER, help="End after N; 0: no limit. (default: 100)"
        ),
    ] = None,
    max_failures: Annotated[
        str | None,
        typer.Option(metavar=_NUMBER, help="Give up after N failing iterations in a row. (default: 5)"),
    ] = None,
    max_stalls: Annotated[
        str | None,
        typer.Option(
            metavar=_NUMBER, help="Give up after N iterations in a row that changed nothing. (default: 5)"
        ),
    ] = None,
    max_time: Annotated[
        str | None, typer.Option(metavar=_TIME, help="End the loop after this (90s, 15m, 2h).")
    ] = None,
    iteration_timeout: Annotated[
        str | None, typer.Option(metavar=_TIME, help="Cut an iteration short after this.")
    ] = None,
    idle_timeout: Annotated[
        str | None, typer.Option(metavar=_TIME, help="Cut an iteration short after this time without output.")
    ] = None,
    delay: Annotated[str | None, typer.Option(metavar=_TIME, help="Wait between iterations.")] = None,
    grace: Annotated[
        str | None,
        typer.Option(metavar=_TIME, help="Between asking the agent to end and killing it. (default: 5s)"),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="A line of the agent's answer that ends the loop. (default: <promise>COMPLETE</promise>)",
        ),
    ] = None,
    isolation: Annotated[
        str | None,
        typer.Option(metavar="prefer|require|off", help="Whether to work in a worktree. (default: prefer)"),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(metavar="REF", help="Where the branch starts: head, or any revision. (default: head)"),
    ] = None,
    branch: Annotated[
        str | None, typer.Option(metavar="NAME", help="Make or continue this branch. (default: ralph/<id>)")
    ] = None,
    hooks: Annotated[
        str | None,
        typer.Option(metavar="off|on", help="Run git hooks in the agent's commits. (default: off)"),
    ] = None,
    on_dirty: Annotated[
        str | None,
        typer.Option(metavar="wip|keep", help="Save uncommitted work, or leave the worktree. (default: wip)"),
    ] = None,
    keep_worktree: Annotated[bool | None, typer.Option("--keep-worktree", help="Leave the worktree.")] = None,
    drop_empty: Annotated[
        bool | None, typer.Option("--drop-empty", help="Delete the branch if nothing came of the session.")
    ] = None,
    ignore: Annotated[
        str | None,
        typer.Option(
            metavar="gitignore|exclude|off",
            help="Where the rule .ralph/worktrees/ goes. (default: gitignore)",
        ),
    ] = None,
) -> None:
    """Run an agent in a loop, in a worktree of its own.

    Every option is also RALPH_WRAP_<OPTION> in the environment and, but for the project,
    a key in .ralph/config.toml.
    """
    given = locals()
    flags = {
        name: value if value is None or isinstance(value, str) else "on"
        for name, value in given.items()
        if name in config.OPTIONS
    }
    with boundary("run", json=False):
        raise typer.Exit(_run(context.obj, project, flags, tuple(command or ())))


def _run(
    signals: Signals | None, directory: Path, flags: Mapping[str, str | None], command: tuple[str, ...]
) -> int:
    from ralph_wrap import project  # noqa: PLC0415 -- what the command line does not need comes late
    from ralph_wrap.session import Session  # noqa: PLC0415

    if not directory.is_dir():
        raise UsageError(
            f"project {directory} is not there, or no directory", "name a directory that is there"
        )
    log = on_stderr(os.environ)

    def load_all() -> None:
        # Python may be installed where only root can read.
        log.load("rich", "ssl")
        liveness.start_time()

    environ = user.become_owner(directory, os.environ, before=load_all)
    place = project.find(directory, environ)
    settings = with_agent(config.load(directory, place.root, Path.cwd(), flags, environ, command))
    session = Session(settings, environ=environ, place=place, log=log, signals=signals, whole_process=True)
    with suppress(StoppedError), session:
        session.run()
    return session.report.exit_status if session.report else RalphError.exit_code
