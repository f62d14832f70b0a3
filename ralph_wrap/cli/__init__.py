"""The command line: parse, call one use case, render its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ralph_wrap.cli.ps import ps
from ralph_wrap.cli.run import run

if TYPE_CHECKING:
    from ralph_wrap.signals import Signals

app = typer.Typer(
    name="ralph-wrap",
    help="Run coding agents in a loop, each in its own git worktree, and never lose their work.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# The command begins with the first word that is no option of ours: its own options are not for us.
app.command(rich_help_panel="Loops", context_settings={"allow_interspersed_args": False})(run)
app.command(rich_help_panel="Loops")(ps)


def _show_version(value: bool) -> None:
    if value:
        from importlib.metadata import version as installed_version  # noqa: PLC0415 -- as slow as Typer

        typer.echo(f"ralph-wrap {installed_version('ralph-wrap')}")
        raise typer.Exit


@app.callback()
def _common(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main(signals: Signals | None) -> NoReturn:
    """Run the command line of this process, which ends with it."""
    app(obj=signals, prog_name="ralph-wrap")
    raise AssertionError("Typer ends the process")
