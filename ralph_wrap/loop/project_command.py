"""Run a command of the project in a session: ``setup``, the gate, and ``teardown``.

It runs in the agent's workspace, environment and sandbox. Signals, requests to stop, and time limits end it
as they end an agent. The user approved its text before the session began (``trust``), or typed it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.loop.iteration_context import IterationContext
from ralph_wrap.loop.policy import CutReason
from ralph_wrap.loop.supervise import AgentSupervisor, Termination
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.output_relay import OutputRelay
from ralph_wrap.system.process import ProcessGroup, ProcessSpec, StandardStreams
from ralph_wrap.system.text import command as quoted

log = get_logger()

_SHOWN = 60  # maximum number of characters of the command in messages


class ProjectCommand(NamedTuple):
    """A command of the project.

    Attributes:
        name: ``setup`` or ``verify``, for messages and events.
        text: what ``sh -c`` runs.
        timeout: seconds; 0 or ``None`` is no limit.
        timeout_reason: the reason if it is ended then.

    """

    name: str
    text: str
    timeout: float | None
    timeout_reason: CutReason

    @property
    def shown(self) -> str:
        """The command in a message."""
        return shown(self.text)


def shown(text: str) -> str:
    """Return a command as a message has it: the beginning of its first line."""
    first, _, more = text.strip().partition("\n")
    return f"{first[:_SHOWN]}…" if more or len(first) > _SHOWN else first


def start_shell(
    text: str,
    cwd: Path,
    environ: Mapping[str, str],
    *,
    output: int,
    inherited: int,
    start: Callable[[ProcessSpec], ProcessGroup],
) -> ProcessGroup:
    """Start a command of the project by ``sh -c``, with an empty standard input.

    Arguments:
        output: descriptor for its standard output and errors.
        inherited: one more descriptor that it gets.
        start: starts it, perhaps in a sandbox.

    Raises:
        OSError: it cannot be started.

    """
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        spec = ProcessSpec(
            ("sh", "-c", text),
            cwd=cwd,
            env={**environ, "PWD": str(cwd)},
            streams=StandardStreams(nothing, output, output),
            inherited=inherited,
        )
        return start(spec)
    finally:
        os.close(nothing)


class CommandEnd(NamedTuple):
    """How a command has ended: status, the outside cause if there is one, and how long it took."""

    status: int
    cut: CutReason | None
    seconds: float


class CommandRunner:
    """Runs the commands of one session.

    Arguments:
        context: directory and environment, as for the agent.
        relay: moves the output; all of it goes to stderr, because stdout belongs to the agent.
        supervisor: waits for the command.
        deadline: of the whole session, as :func:`time.monotonic` counts; ``None`` for none.

    """

    def __init__(
        self,
        context: IterationContext,
        relay: OutputRelay,
        supervisor: AgentSupervisor,
        deadline: float | None,
    ) -> None:
        self._context = context
        self._relay = relay
        self._supervisor = supervisor
        self._deadline = deadline

    @property
    def output(self) -> str:
        """How a user sees the output, for messages."""
        return f"to see its output: {quoted('ralph-wrap', 'logs', self._context.directory.name)}"

    def run(self, command: ProjectCommand, environ: Mapping[str, str], iteration: int = 0) -> CommandEnd:
        """Run a command to its end, and log both.

        Arguments:
            command: what to run, and its limit.
            environ: of the agent.
            iteration: the number that the command finds in its environment; 0 before the first one.

        Raises:
            OSError: it cannot be started.

        """
        begun = time.monotonic()
        limits = {} if self._deadline is None else {CutReason.MAX_TIME: self._deadline}
        if command.timeout:
            limits[command.timeout_reason] = begun + command.timeout
        ending = Termination()
        group = self._spawn(command, environ, iteration)
        name = command.name
        log.event(
            f"{name}.started",
            f"{name}: {command.shown}",
            pid=group.pid,
            command=command.text,
        )
        # A message cannot be for an iteration before the first one has begun.
        ended = self._supervisor.supervise(
            group, ending, lambda: limits, name=name, heeds_messages=iteration > 0
        )
        self._supervisor.clear_up(ending)
        seconds = round(time.monotonic() - begun, 3)
        log.event(
            f"{name}.ended",
            pid=group.pid,
            status=ended.status,
            seconds=seconds,
            cut=ended.cut.value if ended.cut else None,
        )
        return CommandEnd(ended.status, ended.cut, seconds)

    def _spawn(self, command: ProjectCommand, environ: Mapping[str, str], iteration: int) -> ProcessGroup:
        _, errors = self._relay.writing_ends
        return start_shell(
            command.text,
            self._context.cwd,
            {**environ, "RALPH_ITERATION": str(iteration)},
            output=errors,
            inherited=self._context.inherited,
            start=self._context.start,
        )
