"""The command line: parse, call one use case, render its result."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

from ralph_wrap.errors import RalphError, UsageError
from ralph_wrap.interfaces.cli import fast_parser

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, NoReturn

    from ralph_wrap.system.signals import SignalHandlers

_NAME = "ralph-wrap"


def main(signals: SignalHandlers | None) -> NoReturn:
    """Run the command line of this process, then end the process."""
    typed = fast_parser.read(sys.argv[1:], os.environ)
    if typed is not None:
        from ralph_wrap.interfaces.cli.start import spawn, start  # noqa: PLC0415 -- other commands do not need it

        if typed.verb == "spawn":
            with _interruptible(signals):
                sys.exit(spawn(typed.project, typed.flags, typed.command))
        sys.exit(start(signals, typed.project, typed.flags, typed.command))
    import typer  # noqa: PLC0415 -- slow

    from ralph_wrap.interfaces.cli.app import app  # noqa: PLC0415 -- loads every command

    mistake: Any = typer.BadParameter.__base__  # UsageError, which Typer has no public name for
    try:
        with _interruptible(signals):
            status = app(obj=signals, prog_name=_NAME, standalone_mode=False)
    except typer.Abort as error:  # Typer makes it of Ctrl-C
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        sys.exit(RalphError.exit_code)
    except mistake as error:
        if len(sys.argv) == 1:  # Typer has shown the help
            sys.exit(UsageError.exit_code)
        from ralph_wrap.interfaces.cli.boundary import print_error, refuse  # noqa: PLC0415 -- only a mistake needs it

        message = " ".join(error.format_message().split())
        path, json = _asked(typer.main.get_command(app), sys.argv[1:])
        wrong = UsageError(message, f"see {' '.join([_NAME, *path])} --help")
        if json:
            refuse(" ".join(path), wrong)
        else:
            print_error(wrong)
        sys.exit(UsageError.exit_code)
    sys.exit(status)


@contextlib.contextmanager
def _interruptible(signals: SignalHandlers | None) -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt`` in the context, so that a command can undo what it has begun.

    Arguments:
        signals: the handlers of ``run``, which stay.

    """
    before = signal.getsignal(signal.SIGINT)
    if signals is not None or not callable(before):  # in the second case, Ctrl-C is ignored
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _asked(command: Any, arguments: Sequence[str]) -> tuple[list[str], bool]:
    """Return the words of the command that was typed, and whether it should print JSON.

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
    return path, has_json and "--json" in own_words
