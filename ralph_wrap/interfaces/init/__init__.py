"""PID 1 of a container: reaps orphaned processes, and stops every session before the container ends.

``docker stop`` sends SIGTERM to PID 1 alone. A process of ``docker exec`` has no parent in the container. The
kernel kills it with SIGKILL when PID 1 exits. So PID 1 sends SIGTERM to these processes and waits for them.

1. **Start** a sweep, which finishes dead sessions, and the command, if there is one. Both are children. PID 1
   does no other work itself, so that it stays small and nothing can block it. With ``--resume``, another
   child goes on with the sessions that the last end of this container interrupted, after the first sweep.
2. **Reap** every child, including adopted orphans; forward every signal to the command. HUP sweeps again.
3. **Stop** on TERM, INT or QUIT, or when the command has ended: send TERM to all processes of the container.
   It makes no difference whether they are registered sessions. Processes *below* a session get none: TERM to
   the ``git add`` of a session would damage its save.
4. **Wait** until these processes have ended, and send TERM to processes that start meanwhile. The deletion of
   a removed worktree gets no signal, only the rest of the time. A process that is still running later gets a
   second TERM. A session then gives its agent no grace. PID 1 exits at its time-out in any case, which is
   shorter than docker's.

It never signals a process outside its container (:func:`init.processes.is_init`). It never uses
``subprocess``, because ``waitpid(-1)`` would reap its children. It survives its own errors,
because its exit would kill every session. It imports only the standard library, and not ``pathlib``, which
costs memory.
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


class InitOptions(NamedTuple):
    """The options of ``init``.

    Attributes:
        stop_timeout: seconds.
        command: the command to run; empty for none.
        resume: sessions that the last end of this container interrupted go on.

    """

    stop_timeout: float
    command: tuple[str, ...]
    resume: bool = False


def read(arguments: Sequence[str], environ: Mapping[str, str]) -> InitOptions | None:
    """Read a command line; return ``None`` for a mistake or ``--help``, which Typer handles.

    Arguments:
        arguments: the words after ``init``.
        environ: it may hold ``RALPH_WRAP_STOP_TIMEOUT`` and ``RALPH_WRAP_INIT_RESUME``.

    """
    words = [*arguments]
    resume = wants_resume(environ)
    timeout = environ.get("RALPH_WRAP_STOP_TIMEOUT") or STOP_TIMEOUT
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        if word == "--resume":
            resume = True
            continue
        option, sign, value = word.partition("=")
        if option != "--stop-timeout" or not (sign or words):
            return None
        timeout = value if sign else words.pop(0)
    try:
        return InitOptions(duration(timeout), tuple(words), resume)
    except ValueError:
        return None


def wants_resume(environ: Mapping[str, str]) -> bool:
    """Return whether ``RALPH_WRAP_INIT_RESUME`` is on; the words are those of ``config.FLAG_WORDS``."""
    return environ.get("RALPH_WRAP_INIT_RESUME", "").lower() in {"1", "true", "yes", "on"}


def duration(value: str) -> float:
    """Read ``90s``, ``15m``, ``2h`` in the same way as ``config.duration``, which is too large to load here.

    Returns:
        Seconds.

    Raises:
        ValueError: the value is not a duration.

    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|)", value)
    if not match:
        raise ValueError(f"{value!r} is no duration (90s, 15m, 2h, 14d)")
    return float(match[1]) * _UNITS[match[2]]


def run(options: InitOptions) -> int:
    """Run as the init of this container until it ends.

    Returns:
        The exit status of the command; 0 without a command.

    """
    supervisor = Supervisor(options.stop_timeout, options.command, resume=options.resume)
    while True:
        try:
            supervisor.turn()
        except Exception as error:  # noqa: BLE001 -- our exit would kill every session
            say(f"internal error, continuing: {error!r}")
            time.sleep(0.1)  # the error may repeat at once, and must not keep a processor busy
        if supervisor.over:
            return supervisor.status
