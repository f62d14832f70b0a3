"""The command line: parse, call one use case, render its result."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator

import typer
from typer.exceptions import TyperException

from ralph_wrap.errors import RalphError, UsageError
from ralph_wrap.interfaces.cli.app import COMMANDS, app
from ralph_wrap.interfaces.cli.boundary import print_error, refuse

_NAME = "ralph-wrap"


def run_command_line() -> int | None:
    """Run the command that was typed.

    Returns:
        Its exit status.

    """
    try:
        with _interruptible():
            return app(prog_name=_NAME, standalone_mode=False)  # type: ignore[no-any-return]
    except typer.Abort as error:  # Typer makes it of Ctrl-C
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        return RalphError.exit_code
    except TyperException as error:
        if len(sys.argv) > 1:  # else Typer has shown the help
            _print_mistake(error)
        return UsageError.exit_code


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt`` in the context, so that a command can undo what it has begun."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):  # Ctrl-C is ignored
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print_mistake(error: TyperException) -> None:
    """Print what is wrong with the command line, as JSON if that was asked for."""
    words = sys.argv[1 : [*sys.argv, "--"].index("--")]
    context = getattr(error, "ctx", None)  # none for a switch with a value, or an option without one
    path = context.command_path.split()[1:] if context else [word for word in words[:1] if word in COMMANDS]
    has_json = context is None or any(parameter.name == "json" for parameter in context.command.params)
    message = " ".join(error.format_message().split())
    mistake = UsageError(message, f"see {' '.join([_NAME, *path])} --help")
    if has_json and "--json" in words:
        refuse(" ".join(path), mistake)
    else:
        print_error(mistake)
