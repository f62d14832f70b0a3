"""Every command: the table of commands, and how Typer loads the one that was typed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import version as installed_version
from inspect import getdoc
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from ralph_wrap.interfaces.cli.options import CommandWithDashes


class CommandRow(NamedTuple):
    """A command that is loaded when it is called.

    Attributes:
        module: the module in this package that defines a function, or a Typer app, of the command's name.
        panel: where the command stands in the list of all commands.
        summary: its line in that list: the first line of the function's docstring.
        settings: what Typer's ``command()`` takes.

    """

    module: str
    panel: str
    summary: str
    settings: Mapping[str, Any] = {}


def _examples(*commands: str) -> str:
    """Return the end of a help: each paragraph is a line."""
    return "\n\n".join(("Examples:", *commands))


# The agent's command begins with the first word that is no option; later options belong to the agent.
_AGENT_COMMAND = {"allow_interspersed_args": False}

COMMANDS = {
    "quickstart": CommandRow(
        "quickstart",
        "Loops",
        "Set up a project: choose an agent, write PROMPT.md and .ralph/config.toml, and check everything.",
    ),
    "run": CommandRow(
        "run",
        "Loops",
        "Run an agent in a loop, in a worktree of its own.",
        {
            "context_settings": _AGENT_COMMAND,
            "epilog": _examples(
                'ralph-wrap run -a claude -p "Fix the failing tests." -n 10',
                "ralph-wrap run -f TASK.md --max-time 2h -- ./agent.sh",
            ),
        },
    ),
    "spawn": CommandRow(
        "run",
        "Loops",
        "Run an agent in a loop in the background, and print the session's id.",
        {"context_settings": _AGENT_COMMAND},
    ),
    "batch": CommandRow(
        "batch",
        "Loops",
        "Do the tasks of a file, each in a session of its own, and at most N at once.",
        {
            "epilog": _examples(
                "ralph-wrap batch TASKS.md -j 3 -a claude", "ralph-wrap batch TASKS.md -- ./agent.sh"
            )
        },
    ),
    "resume": CommandRow(
        "resume",
        "Loops",
        "Go on where a session ended: same branch, same agent, and its saved work back in the worktree.",
        {"cls": CommandWithDashes},
    ),
    "ps": CommandRow(
        "ps", "Loops", "List the sessions of a project that run, and those that have kept their worktree."
    ),
    "logs": CommandRow("logs", "Loops", "Print the agent's output, or the event log of a session."),
    "wait": CommandRow(
        "wait",
        "Loops",
        "Wait until sessions have ended, and end with their exit status:"
        " of several, the first that is not 0.",
    ),
    "stop": CommandRow(
        "stop",
        "Loops",
        "Ask sessions to end, in any container or on the host, and wait until they have ended.",
    ),
    "tell": CommandRow(
        "tell",
        "Loops",
        "Tell running sessions something, from any container or the host: the next prompt begins with it.",
        {
            "epilog": _examples(
                'ralph-wrap tell a3f2 "Use the new database."', "ralph-wrap tell a3f2 --now - <TEXT"
            )
        },
    ),
    "rm": CommandRow(
        "rm", "Loops", "End background sessions, save their work and remove their worktrees. Branches stay."
    ),
    "sweep": CommandRow(
        "sweep", "Loops", "Finish dead sessions: save their work, remove their worktrees, release their ids."
    ),
    "clean": CommandRow(
        "clean",
        "Loops",
        "Delete old records and logs of sessions that have landed, and dropped branches that are due.",
    ),
    "fleet": CommandRow("fleet", "Loops", "Run many sessions at once, on Kubernetes or on other machines."),
    "init": CommandRow(
        "init",
        "Container",
        "Be PID 1 of a container: reap zombies, and end every session before the container ends.",
        {"context_settings": _AGENT_COMMAND},
    ),
    "doctor": CommandRow(
        "doctor", "Setup", "Check what would go wrong for a session here, and how to correct it."
    ),
    "trust": CommandRow(
        "trust",
        "Setup",
        "Approve PROMPT.md, what .ralph/config.toml decides beyond limits,"
        " and what .git/config makes git run.",
    ),
    "config": CommandRow("config", "Setup", "Show the settings and their sources."),
    "review": CommandRow(
        "review",
        "Review",
        "List the branches of sessions: their changes, whether they are merged, and their conflicts.",
        {"epilog": _examples("ralph-wrap review --only unmerged", "ralph-wrap review --html review.html")},
    ),
    "fetch": CommandRow(
        "fetch",
        "Review",
        "Bring the sessions of other machines from a remote; then review, diff, merge and resume have them.",
    ),
    "diff": CommandRow(
        "diff",
        "Review",
        "Show the changes of a branch since it began, or the difference between two branches.",
    ),
    "merge": CommandRow(
        "merge", "Review", "Merge branches of sessions into a target branch, or change nothing and say why."
    ),
    "drop": CommandRow(
        "drop",
        "Review",
        "Delete merged branches with their saved work; restore brings them back for 30 days.",
    ),
    "restore": CommandRow(
        "drop",
        "Review",
        "Bring back a dropped branch and its saved work; without an ID, list what can be brought back.",
    ),
    "apply": CommandRow(
        "apply",
        "Review",
        "Put saved work into a checkout, all of it or nothing. Overwrites no file and stages nothing.",
    ),
    "web": CommandRow(
        "web",
        "Review",
        "Review, merge, apply, drop, resume, tell and stop in a browser on this machine. Prints the address.",
    ),
    "audit": CommandRow(
        "audit",
        "Review",
        "Show what in this repository makes plain git run a program, read elsewhere or show something else.",
    ),
    "pool": CommandRow(
        "pool",
        "Worktrees",
        "List the warm worktrees in which sessions start. With pool = N in .ralph/config.toml there are N.",
    ),
    "mcp": CommandRow(
        "mcp",
        "Worktrees",
        "Serve agents the tools to enter and exit a worktree (Model Context Protocol, stdin and stdout).",
    ),
    "worktree": CommandRow("worktree", "Worktrees", "Manage worktrees for other programs; prints JSON."),
}


class LazyCommand(TyperCommand):
    """Stands for a command in the list of commands; its module is imported when its arguments are read.

    Arguments:
        name: as it is typed.
        row: where it is.

    """

    def __init__(self, name: str, row: CommandRow) -> None:
        super().__init__(name, help=row.summary, rich_help_panel=row.panel)
        self._row = row

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the arguments, as the command itself does."""
        return self.loaded.make_context(info_name, args, parent, **extra)

    @cached_property
    def loaded(self) -> Any:
        """The command itself, as Typer makes it: a command, or a group of commands."""
        module = import_module(f"{__package__}.{self._row.module}")
        assert self.name is not None
        defined = getattr(module, self.name)
        loaded = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        if isinstance(defined, typer.Typer):
            loaded.add_typer(defined, name=self.name, rich_help_panel=self._row.panel)
        else:
            loaded.command(self.name, rich_help_panel=self._row.panel, **self._row.settings)(defined)
        _join_lines(loaded)
        loaded.callback()(lambda: None)
        group: Any = typer.main.get_command(loaded)
        return group.commands[self.name]


class LazyGroup(TyperGroup):
    """The commands of the table, and those that are defined here."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        table = {name: LazyCommand(name, row) for name, row in COMMANDS.items()}
        self.commands = {**table, **self.commands}


app = typer.Typer(
    name="ralph-wrap",
    cls=LazyGroup,
    help="Run coding agents in a loop, each in its own git worktree, and never lose their work.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


def all_loaded() -> Any:
    """Return Typer's group with each command loaded, for what describes all of them."""
    group: Any = typer.main.get_command(app)
    group.commands = {
        name: command.loaded if isinstance(command, LazyCommand) else command
        for name, command in group.commands.items()
    }
    return group


def _join_lines(commands: typer.Typer) -> None:
    """Join the lines of each paragraph of a help: Typer would break them where the source does."""
    for command in commands.registered_commands:
        command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help or getdoc(command.callback) or "")
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _join_lines(group.typer_instance)
