"""The entry point of the program: it installs signal handlers before the slow imports."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from ralph_wrap.system.signals import SignalHandlers


def main() -> NoReturn:
    """Run the command line and exit."""
    _fill_standard_descriptors()
    if sys.argv[1:2] == ["init"]:
        _be_init()
    from ralph_wrap.system.signals import SignalHandlers  # noqa: PLC0415 -- init has its own, and stays small

    if sys.argv[1:2] == ["run"]:
        # A signal that comes during the slow imports must end the session like any later signal.
        with SignalHandlers() as signals:
            _run(signals)
    _run(None)


def _fill_standard_descriptors() -> None:
    # The next pipe that we open would get the number of a closed descriptor. Our output
    # would go into that pipe.
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the agent needs it, too


def _be_init() -> None:
    """Run as PID 1, then exit; return only if Typer must print help or an error.

    Typer then stays in memory, which is why PID 1 does not load it otherwise.
    """
    from ralph_wrap.interfaces import init  # noqa: PLC0415 -- for this command only

    if options := init.read(sys.argv[2:], os.environ):
        sys.exit(init.run(options))


def _run(signals: SignalHandlers | None) -> NoReturn:
    from ralph_wrap.interfaces.cli import main as run_command_line  # noqa: PLC0415 -- see above

    run_command_line(signals)


if __name__ == "__main__":
    main()
