"""The table of options for Typer: a signature with a type for each kind of value.

A value stays the typed text: ``config.load`` reads the text of every source. A type here checks the text by
the same reader, shows its form in the help, and completes it in a shell.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ralph_wrap import agents
from ralph_wrap.config import of_project
from ralph_wrap.config.options import PROJECT, ROWS
from ralph_wrap.config.table import TYPED, Option
from ralph_wrap.errors import RalphError
from ralph_wrap.state.project import find_project


def declared(row: Option, panel: str | None = None, *, checks: bool = True) -> Any:
    """Return an option as Typer declares it.

    Arguments:
        row: the option.
        panel: of the help.
        checks: Typer refuses a wrong value; else ``config.load`` does, as for every other source.

    """
    complete = (
        complete_agent if row.name == "agent" else _choices(row.kind.choices) if row.kind.choices else None
    )
    return typer.Option(
        *row.words,
        metavar=None if row.is_switch else row.metavar,
        help=row.full_help,
        parser=checked(row.kind.read) if checks and not row.is_switch else None,
        autocompletion=None if row.is_switch else complete,
        rich_help_panel=panel,
    )


ID = "An agent id, a session id, a branch, or a title."
IDS = "Agent ids, session ids, branches, or titles."
"""The help of arguments that name sessions or branches."""

Directory = Annotated[
    Path,
    typer.Option(*PROJECT.words, metavar=PROJECT.metavar, envvar=[*PROJECT.variables], help=PROJECT.help),
]
"""The type of ``project``, which nearly every command has."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
"""The type of ``json`` of commands whose help has no panels."""

FetchedFrom = Annotated[
    str | None,
    typer.Option("--remote", metavar="NAME", help="First fetch the sessions of this remote, as fetch does."),
]
"""The type of ``remote`` of commands that look at sessions of other machines."""


AFTER_DASHES = "after dashes"
"""The key in ``context.meta`` of the words after ``--``."""


class CommandWithDashes(TyperCommand):
    """Keeps the words after ``--``, which ``run`` would take for the agent's command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line."""
        ctx.meta[AFTER_DASHES] = args[args.index("--") + 1 :] if "--" in args else []
        return super().parse_args(ctx, args)


def with_options(
    function: Callable[..., None], without: tuple[str, ...] = (), more: tuple[Option, ...] = ()
) -> Callable[..., None]:
    """Give a function, which takes ``**typed``, a parameter for each option that can be typed.

    Arguments:
        without: names of options that this command does not take.
        more: options that only this command takes.

    """
    signature = inspect.signature(function, eval_str=True)
    own_parameters = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    excluded = {PROJECT.name, *without}
    typed = [row for row in ROWS.values() if TYPED in row.sources and row.name not in excluded]
    rows = sorted((*typed, *more), key=lambda row: _PANELS.index(_panel(row)))
    parameters = [_parameter(row, checks=row in more) for row in rows]
    signature = signature.replace(parameters=[*own_parameters, *parameters])
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__annotations__ = {
        parameter.name: parameter.annotation for parameter in signature.parameters.values()
    }
    return function


def flags(typed: Mapping[str, Any]) -> dict[str, str | None]:
    """Return options as they were typed; ``None`` for those that were not."""
    return {name: _text(value) for name, value in typed.items()}


_PANELS = ("Batch", "Prompt", "Agent", "Limits", "Worktree", "Sandbox", "Output")
"""The panels of the help, in their order."""

_PANEL_OF = {
    **dict.fromkeys(("prompt", "prompt_file", "preamble", "name", "job"), "Prompt"),
    **dict.fromkeys(("grace", "hooks"), "Agent"),
    "raw": "Output",
}
"""The panels of options whose group is of another one."""

_PANEL_OF_GROUP = {
    "": "Batch",
    "agent": "Agent",
    "loop": "Limits",
    "worktree": "Worktree",
    "sandbox": "Sandbox",
    "output": "Output",
}


def _panel(row: Option) -> str:
    return _PANEL_OF.get(row.name) or _PANEL_OF_GROUP[row.group]


def _parameter(row: Option, *, checks: bool) -> inspect.Parameter:
    kind: Any = bool if row.is_switch else list[str] if row.kind.several else str
    annotation = Annotated[kind | None, declared(row, _panel(row), checks=checks)]
    return inspect.Parameter(row.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _text(value: Any) -> str | None:
    if isinstance(value, list):
        return "\n".join(value) if value else None
    return value if value is None or isinstance(value, str) else "on"


def checked(read: Callable[[str], Any]) -> Callable[[str], str]:
    """Return a parser that refuses what a reader of values refuses, and keeps the text.

    Arguments:
        read: raises ValueError for a wrong value.

    """

    def check(text: str) -> str:
        try:
            read(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        return text

    return check


def _choices(words: tuple[str, ...]) -> Callable[[str], list[str]]:
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def complete_agent(incomplete: str) -> list[str]:
    """Return the names of the known agents and of the configuration's agents."""
    return [name for name in sorted({*agents.NAMES, *_configured()}) if name.startswith(incomplete)]


def _configured() -> Iterator[str]:
    with suppress(RalphError, OSError):  # completion shows no errors
        root = find_project(Path(), os.environ).root
        yield from dict(of_project(root, os.environ).agents)
