"""PID 1 of a container: reaps what is orphaned, and ends every session before the container ends.

``docker stop`` tells PID 1 alone. What was started by ``docker exec`` has no parent here and would be killed
without a word as soon as PID 1 is gone, so PID 1 tells it, and waits.

1. **Start** a sweep, which finishes what dead sessions left, and the command, if there is one. Both are
   children: this process does nothing of ours itself, so that it stays small and nothing can hang it.
2. **Reap** every child, whoever's orphan it is; hand every signal on to the command. HUP sweeps again.
3. **End**, on TERM, INT or QUIT, or when the command has ended: TERM to all processes of the container,
   registered session or not, but to none *below* a session: in the middle of its ``git add`` it would hurt
   the save.
4. **Wait** until they are gone, and tell those who come meanwhile. The deletion of a removed worktree is not
   told: it has the rest of the time. Who holds out is told a second time, which
   to a session means: no grace for the agent. At the time-out, shorter than docker's, we go all the same.

It never signals what is not in its container (:func:`init.processes.is_init`), never uses
``subprocess`` (whose children ``waitpid(-1)`` would steal), and does not end by an error of its own: every
session would end with it. Standard library only, without what costs memory and is not needed (``pathlib``).
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.interfaces.init.supervisor import Supervisor
from ralph_wrap.interfaces.init.wait import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STOP_TIMEOUT = "8s"
"""Default of ``--stop-timeout``: docker kills 10 s after its TERM (``docker stop --time``)."""

_UNITS = {"ms": 0.001, "s": 1, "": 1, "m": 60, "h": 3600, "d": 86400}


class Options(NamedTuple):
    """What was typed: the time-out in seconds, and the command, empty if there is none."""

    stop_timeout: float
    command: tuple[str, ...]


def read(arguments: Sequence[str], environ: Mapping[str, str]) -> Options | None:
    """Read a command line; ``None`` if Typer has to: a mistake, or a question for help.

    Arguments:
        arguments: those behind ``init``.
        environ: may hold ``RALPH_WRAP_STOP_TIMEOUT``.

    """
    words = [*arguments]
    timeout = environ.get("RALPH_WRAP_STOP_TIMEOUT") or STOP_TIMEOUT
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        option, given, value = word.partition("=")
        if option != "--stop-timeout" or not (given or words):
            return None
        timeout = value if given else words.pop(0)
    try:
        return Options(duration(timeout), tuple(words))
    except ValueError:
        return None


def duration(value: str) -> float:
    """Read ``90s``, ``15m``, ``2h`` as all options are read (``config.duration``, which is not ours to load).

    Returns:
        Seconds.

    Raises:
        ValueError: it is none of these.

    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|)", value)
    if not found:
        raise ValueError(f"{value!r} is no duration (90s, 15m, 2h, 14d)")
    return float(found[1]) * _UNITS[found[2]]


def run(options: Options) -> int:
    """Be the init of this container until it ends.

    Returns:
        The exit status: that of the command, 0 without one.

    """
    supervisor = Supervisor(options.stop_timeout, options.command)
    while True:
        try:
            supervisor.turn()
        except Exception as error:  # noqa: BLE001 -- whatever it is: our end would kill every session
            say(f"an error of its own, going on: {error!r}")
            time.sleep(0.1)  # it may come again at once, and must not take a processor
        if supervisor.over:
            return supervisor.status
