"""The program's entry: handlers first, imports later."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from ralph_wrap.system.signals import Signals


def main() -> NoReturn:
    """Run the command line and exit."""
    _fill_standard_descriptors()
    if sys.argv[1:2] == ["init"]:
        _be_init()
    from ralph_wrap.system.signals import Signals  # noqa: PLC0415 -- init, which stays small, has its own

    if sys.argv[1:2] == ["run"]:
        # Before the slow imports: a signal in that time must end a session as any other does.
        with Signals() as signals:
            _run(signals)
    _run(None)


def _fill_standard_descriptors() -> None:
    # Closed ones would be given to the next pipe that is opened, and what is meant for us would go there.
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the agent would lack it, too


def _be_init() -> None:
    """Be PID 1, and end with it; return for what Typer has to say, which stays in memory."""
    from ralph_wrap.interfaces import init  # noqa: PLC0415 -- for this command only

    if options := init.read(sys.argv[2:], os.environ):
        sys.exit(init.run(options))


def _run(signals: Signals | None) -> NoReturn:
    from ralph_wrap.interfaces.cli import main as run_command_line  # noqa: PLC0415 -- see above

    run_command_line(signals)


if __name__ == "__main__":
    main()
