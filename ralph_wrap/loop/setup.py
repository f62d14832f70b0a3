"""Prepare a worktree: run the project's ``setup`` command once, before the first iteration.

Signals, requests to stop, and time limits end it as they end an agent. A process that it leaves running (for
example, a database) runs until the session ends. The user approved its text before the session began
(``trust``).
"""

from __future__ import annotations

import os
import time

from ralph_wrap.config import SetupSettings
from ralph_wrap.errors import SetupError
from ralph_wrap.loop.iteration_context import IterationContext
from ralph_wrap.loop.policy import CutReason
from ralph_wrap.loop.supervise import AgentSupervisor, Termination
from ralph_wrap.system import process
from ralph_wrap.system.log import Log
from ralph_wrap.system.output_relay import OutputRelay

_SHOWN = 60  # maximum number of characters of the command in messages


def set_up(
    settings: SetupSettings,
    context: IterationContext,
    relay: OutputRelay,
    supervisor: AgentSupervisor,
    deadline: float | None,
    log: Log,
) -> bool:
    """Run the setup command to its end, but never in the project itself: the user prepares the project.

    Arguments:
        settings: the command and its time limit.
        context: directory and environment, as for the agent.
        relay: moves its output; all of it goes to stderr, because stdout belongs to the agent.
        supervisor: waits for it.
        deadline: of the whole session, as :func:`time.monotonic` counts.

    Returns:
        Whether a signal, a request to stop, or the end of the session's time ended it early.

    Raises:
        SetupError: the command failed, or reached its time limit.

    """
    if not context.isolated:
        log.event("setup.skipped", f"setup is not run in the project itself: {_shown(settings.setup)}")
        return False
    begun = time.monotonic()
    limits = {} if deadline is None else {CutReason.MAX_TIME: deadline}
    if settings.setup_timeout:
        limits[CutReason.SETUP_TIMEOUT] = begun + settings.setup_timeout
    ending = Termination()
    group = _spawn(settings.setup, context, relay)
    log.event("setup.started", f"setup: {_shown(settings.setup)}", pid=group.pid, command=settings.setup)
    ended = supervisor.supervise(group, ending, lambda: limits, name="setup")
    supervisor.clear_up(ending)
    seconds = round(time.monotonic() - begun, 3)
    log.event(
        "setup.ended",
        pid=group.pid,
        status=ended.status,
        seconds=seconds,
        cut=ended.cut.value if ended.cut else None,
    )
    output = f"its output: {context.directory / 'output.log'}"
    if ended.cut is CutReason.SETUP_TIMEOUT:
        raise SetupError(
            f"setup was not done after {seconds:g} s: {_shown(settings.setup)}",
            f"setup_timeout in .ralph/config.toml (0: none); {output}",
        )
    if ended.cut is not None:
        return True
    if ended.status != 0:
        raise SetupError(f"setup failed with status {ended.status}: {_shown(settings.setup)}", output)
    context.process_tree.keep()
    return False


def _spawn(command: str, context: IterationContext, relay: OutputRelay) -> process.ProcessGroup:
    _, errors = relay.writing_ends
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        spec = process.ProcessSpec(
            ("sh", "-c", command),
            cwd=context.cwd,
            env={**context.environ, "RALPH_ITERATION": "0", "PWD": str(context.cwd)},
            streams=process.StandardStreams(nothing, errors, errors),
            inherited=context.inherited,
        )
        return context.start(spec)
    except OSError as error:
        raise SetupError(
            f"setup cannot be run: {error.strerror}: {_shown(command)}", "sh has to be on the PATH"
        ) from None
    finally:
        os.close(nothing)


def _shown(command: str) -> str:
    first, _, more = command.strip().partition("\n")
    return f"{first[:_SHOWN]}…" if more or len(first) > _SHOWN else first
