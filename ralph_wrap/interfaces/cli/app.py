"""Every command, as Typer reads it."""

from __future__ import annotations

import re
from importlib.metadata import version as installed_version
from inspect import getdoc
from typing import TYPE_CHECKING, Annotated

import typer

from ralph_wrap.interfaces.cli.apply import apply
from ralph_wrap.interfaces.cli.audit import audit
from ralph_wrap.interfaces.cli.batch import batch
from ralph_wrap.interfaces.cli.config import config
from ralph_wrap.interfaces.cli.diff import diff
from ralph_wrap.interfaces.cli.doctor import doctor
from ralph_wrap.interfaces.cli.drop import drop, restore
from ralph_wrap.interfaces.cli.fetch import fetch
from ralph_wrap.interfaces.cli.fleet import fleet
from ralph_wrap.interfaces.cli.init import init
from ralph_wrap.interfaces.cli.logs import logs
from ralph_wrap.interfaces.cli.mcp import mcp
from ralph_wrap.interfaces.cli.merge import merge
from ralph_wrap.interfaces.cli.pool import pool
from ralph_wrap.interfaces.cli.ps import ps
from ralph_wrap.interfaces.cli.quickstart import quickstart
from ralph_wrap.interfaces.cli.resume import ResumeCommand, resume
from ralph_wrap.interfaces.cli.review import review
from ralph_wrap.interfaces.cli.rm import rm
from ralph_wrap.interfaces.cli.run import run, spawn
from ralph_wrap.interfaces.cli.stop import stop
from ralph_wrap.interfaces.cli.sweep import sweep
from ralph_wrap.interfaces.cli.trust import trust
from ralph_wrap.interfaces.cli.wait import wait
from ralph_wrap.interfaces.cli.web import web
from ralph_wrap.interfaces.cli.worktree import worktree

if TYPE_CHECKING:
    from collections.abc import Callable


def _examples(*commands: str) -> str:
    """Return the end of a help: each paragraph is a line."""
    return "\n\n".join(("Examples:", *commands))


app = typer.Typer(
    name="ralph-wrap",
    help="Run coding agents in a loop, each in its own git worktree, and never lose their work.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _add(panel: str, *commands: Callable[..., None]) -> None:
    """Add commands, in this order, to a panel of the help."""
    for command in commands:
        app.command(rich_help_panel=panel)(command)


_add("Loops", quickstart)
# The agent's command begins with the first word that is no option; later options belong to the agent.
app.command(
    rich_help_panel="Loops",
    context_settings={"allow_interspersed_args": False},
    epilog=_examples(
        'ralph-wrap run -a claude -p "Fix the failing tests." -n 10',
        "ralph-wrap run -f TASK.md --max-time 2h -- ./agent.sh",
    ),
)(run)
app.command(rich_help_panel="Loops", context_settings={"allow_interspersed_args": False})(spawn)
app.command(
    rich_help_panel="Loops",
    epilog=_examples("ralph-wrap batch TASKS.md -j 3 -a claude", "ralph-wrap batch TASKS.md -- ./agent.sh"),
)(batch)
app.command(rich_help_panel="Loops", cls=ResumeCommand)(resume)
_add("Loops", ps, logs, wait, stop, rm, sweep)
app.command(rich_help_panel="Container", context_settings={"allow_interspersed_args": False})(init)
_add("Setup", doctor, trust)
app.command(
    rich_help_panel="Review",
    epilog=_examples("ralph-wrap review --only unmerged", "ralph-wrap review --html review.html"),
)(review)
_add("Review", fetch, diff, merge, drop, restore, apply, web, audit)
app.add_typer(fleet, name="fleet", rich_help_panel="Loops")
app.add_typer(config, name="config", rich_help_panel="Setup")
app.add_typer(worktree, name="worktree", rich_help_panel="Worktrees")
_add("Worktrees", pool, mcp)


@app.command(rich_help_panel="Help")
def version() -> None:
    """Show the version."""
    typer.echo(f"ralph-wrap {installed_version('ralph-wrap')}")


@app.command("help", rich_help_panel="Help")
def show_help(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]…", help="A command, such as: worktree exit.")
    ] = None,
) -> None:
    """Show the help of a command, or the list of all commands."""
    app([*(command or ()), "--help"], prog_name="ralph-wrap", standalone_mode=False)


def _show_version(value: bool) -> None:
    if value:
        version()
        raise typer.Exit


@app.callback()
def _common(
    _version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def _join_lines(commands: typer.Typer) -> None:
    """Join the lines of each paragraph of a help: Typer would break them where the source does."""
    for command in commands.registered_commands:
        command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help or getdoc(command.callback) or "")
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _join_lines(group.typer_instance)


_join_lines(app)
