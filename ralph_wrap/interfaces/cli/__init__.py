"""The command line: parse, call one use case, render its result."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from ralph_wrap.errors import UsageError
from ralph_wrap.interfaces.cli import fast_parser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralph_wrap.system.signals import SignalHandlers

_NAME = "ralph-wrap"


def main(signals: SignalHandlers | None) -> NoReturn:
    """Run the command line of this process, then end the process."""
    typed = fast_parser.read(sys.argv[1:], os.environ)
    if typed is not None:
        from ralph_wrap.interfaces.cli.start import spawn, start  # noqa: PLC0415 -- other commands do not need it

        if typed.verb == "spawn":
            sys.exit(spawn(typed.project, typed.flags, typed.command))
        sys.exit(start(signals, typed.project, typed.flags, typed.command))
    import typer  # noqa: PLC0415 -- slow

    from ralph_wrap.interfaces.cli.app import app  # noqa: PLC0415 -- loads every command

    mistake: Any = typer.BadParameter.__base__  # UsageError, which Typer has no public name for
    try:
        status = app(obj=signals, prog_name=_NAME, standalone_mode=False)
    except mistake as error:
        if len(sys.argv) == 1:  # Typer has shown the help
            sys.exit(UsageError.exit_code)
        if tool := _asked_for_json(typer.main.get_command(app), sys.argv[1:]):
            from ralph_wrap.interfaces.cli.boundary import refuse  # noqa: PLC0415 -- only a mistake needs it

            message = " ".join(error.format_message().split())
            refuse(tool, UsageError(message, f"see {_NAME} {tool} --help"))
            sys.exit(UsageError.exit_code)
        if not sys.stderr.isatty():  # only people need the box that Typer draws
            error.show()
            sys.exit(error.exit_code)
        app(obj=signals, prog_name=_NAME)  # Typer parses again and prints the mistake
    sys.exit(status)


def _asked_for_json(command: Any, arguments: Sequence[str]) -> str:
    """Return the name of the command that should print JSON; empty if there is none.

    It reads the words again, because Typer cannot answer after a mistake. Typer stops at the first wrong
    word, before its context has any option (``review --json --nonsense``). For a switch with a value, or an
    option without one, the error has no context, so no command either (``drop --json --merged=yes``).

    Arguments:
        command: Typer's group of all commands.
        arguments: without the program's name.

    """
    own_words = [*arguments][: [*arguments, "--"].index("--")]
    path = []
    for word in own_words:
        if word not in getattr(command, "commands", ()):
            break
        path.append(word)
        command = command.commands[word]
    has_json = any(parameter.name == "json" for parameter in command.params)
    return " ".join(path) if has_json and "--json" in own_words else ""
