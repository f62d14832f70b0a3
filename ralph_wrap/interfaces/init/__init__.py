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

import time
from typing import NamedTuple

from ralph_wrap.interfaces.init.supervisor import Supervisor
from ralph_wrap.interfaces.init.wait import say


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
