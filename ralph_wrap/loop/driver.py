"""Run the agent again and again, and obey the policy.

While an agent works, the driver waits in one ``poll(2)`` for output, signals, the agent's end and the next
time limit: without any of them it does not wake up.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ralph_wrap import process
from ralph_wrap.errors import AgentError, AgentNotFoundError, RalphError
from ralph_wrap.files import write_all
from ralph_wrap.loop.policy import CUT_SHORT, Cut, End, Iteration, LoopResult, State, after
from ralph_wrap.loop.terminal import find_terminal
from ralph_wrap.signals import suspend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ralph_wrap.config import Settings
    from ralph_wrap.log import Log
    from ralph_wrap.relay import LineFinder, Relay
    from ralph_wrap.signals import Signals

_TYPED = {128 + signal.SIGINT, 128 + signal.SIGQUIT}  # exit statuses after Ctrl-C and Ctrl-\\


@dataclass(frozen=True, slots=True)
class Stage:
    """What an agent is run with; the same for every iteration.

    Attributes:
        cwd: its working directory.
        environ: its environment.
        fingerprint: tells one state of the workspace from another; empty if it cannot be told.
        pristine: what *fingerprint* would return before the first iteration, where that is known.
        begin: called with the iteration's number before each one.
        end_leftovers: ends what an agent has left running.
        reap: collects orphans that came to us and have ended.

    """

    cwd: Path
    environ: Mapping[str, str]
    fingerprint: Callable[[], str]
    pristine: str
    begin: Callable[[int], None]
    end_leftovers: Callable[[], object]
    reap: Callable[[int], None]


class Driver:
    """Runs iterations until the policy, a signal or a time limit ends them.

    Arguments:
        settings: the limits, the command, the prompt.
        stage: what the agent is run with.
        relay: where its output goes.
        answer: fed with its stdout.
        signals: entered; their requests end the loop.
        log: told of everything.

    """

    def __init__(
        self,
        settings: Settings,
        stage: Stage,
        relay: Relay,
        answer: LineFinder,
        signals: Signals,
        log: Log,
    ) -> None:
        self._settings = settings
        self._stage = stage
        self._relay = relay
        self._answer = answer
        self._signals = signals
        self._stop = signals.stop
        self._log = log
        self._deadline = time.monotonic() + settings.max_time if settings.max_time else None
        self._terminal = find_terminal(settings)

    def run(self) -> LoopResult:
        """Run the loop to its end.

        Raises:
            AgentError: the agent could not be executed.

        """
        settings = self._settings
        state = State()
        status = 0
        before = ""
        if settings.max_stalls:
            before = self._stage.pristine or self._stage.fingerprint()
        while True:
            number = state.iterations + 1
            if self._stop.count:
                return self._signalled(state.iterations)
            if self._deadline and time.monotonic() >= self._deadline:
                return LoopResult("max-time", status, state.iterations)
            iteration = self._iterate(number)
            status = iteration.status
            now = ""
            if (
                before
                and number != settings.max_iterations
                and not iteration.promised
                and iteration.cut is None
            ):
                now = self._stage.fingerprint()
                iteration = replace(iteration, changed=now != before if now else None)
            self._tell_ended(number, iteration)
            if iteration.cut is Cut.SIGNAL:
                return self._signalled(number)
            state, decision = after(settings, state, iteration)
            if isinstance(decision, End):
                return LoopResult(decision.ended_by, decision.status, number)
            before = now or before
            self._pause(decision.pause)

    def _signalled(self, iterations: int) -> LoopResult:
        return LoopResult("signal", 128 + (self._stop.first or 0), iterations)

    def _iterate(self, number: int) -> Iteration:
        self._stage.begin(number)
        self._log.event("iteration.started", iteration=number)
        try:
            stdin = self._prompt()
        except OSError as error:
            self._log.warning(
                "prompt.unreadable",
                f"prompt file {self._settings.prompt_file} cannot be read: {error.strerror}",
                "the iteration counts as failed",
            )
            return Iteration(1)
        try:
            group = self._spawn(stdin, number)
        finally:
            if stdin is not None:
                os.close(stdin)
        self._log.event("agent.started", pid=group.pid, command=list(self._settings.command))
        with self._terminal.lent():
            iteration = self._watch(group)
        if iteration.cut is not None:
            self._stage.end_leftovers()
        self._relay.drain()
        self._log.event("agent.exited", pid=group.pid, status=iteration.status)
        return replace(iteration, promised=self._answer.finish() and iteration.cut is not Cut.SIGNAL)

    def _spawn(self, stdin: int | None, number: int) -> process.Group:
        streams = process.Streams(stdin, *self._relay.writing_ends)
        if self._terminal.descriptor is not None:
            streams = process.Streams(None, None, None)
        command = self._settings.command
        cwd = self._stage.cwd
        try:
            return process.Group(
                command,
                cwd=cwd,
                env={**self._stage.environ, "RALPH_ITERATION": str(number), "PWD": str(cwd)},
                streams=streams,
                terminal=self._terminal.descriptor,
            )
        except FileNotFoundError:
            if not cwd.is_dir():
                raise RalphError(f"the workspace {cwd} is gone") from None
            raise AgentNotFoundError(
                f"agent command {command[0]} was not found in {cwd}", "is it committed, and on the base?"
            ) from None
        except OSError as error:
            hint = (
                "its first line must name an interpreter: #!/bin/sh" if error.errno == errno.ENOEXEC else ""
            )
            raise AgentError(f"agent command {command[0]} cannot be run: {error.strerror}", hint) from None

    def _prompt(self) -> int | None:
        """Return a descriptor to read the prompt from; a file, so that an agent may read it when it likes."""
        if self._settings.prompt_file is not None:
            content = self._settings.prompt_file.read_bytes()
        elif self._settings.prompt is not None:
            content = self._settings.prompt.encode("utf-8", "surrogateescape")
        else:
            return None
        descriptor = _anonymous_file()
        write_all(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def _watch(self, group: process.Group) -> Iteration:
        settings = self._settings
        relay = self._relay
        relay.last_output = begun = time.monotonic()
        heard = self._stop.count
        cut: Cut | None = None
        kill_at: float | None = None
        limits = {Cut.MAX_TIME: self._deadline}
        if settings.iteration_timeout:
            limits[Cut.ITERATION_TIMEOUT] = begun + settings.iteration_timeout
        while (status := group.poll()) is None:
            if settings.idle_timeout and self._terminal.descriptor is None:
                limits[Cut.IDLE_TIMEOUT] = relay.last_output + settings.idle_timeout
            now = time.monotonic()
            if self._stop.count > heard:
                heard = self._stop.count
                cut = Cut.SIGNAL
                self._forward(group)
                kill_at = now + settings.grace if heard == 1 else now
            if cut is None and (
                due := [limit for limit, at in limits.items() if at is not None and now >= at]
            ):
                cut = due[0]
                self._log.warning("limit.reached", f"{cut.value} reached: the agent is asked to end")
                group.signal(signal.SIGTERM)
                kill_at = now + settings.grace
            if kill_at is not None and now >= kill_at:
                group.signal(signal.SIGKILL)
                kill_at = None
            if self._stop.suspended:
                self._suspend(group)
            if self._terminal.descriptor is not None and group.stopped():
                self._terminal.suspend_with(group)
            self._wait([kill_at] if cut else [*limits.values()])
            self._stage.reap(group.pid)
        if cut is None and self._terminal.descriptor is not None and status in _TYPED:
            self._stop.record(
                status - 128
            )  # the terminal sent it to the agent alone; it is meant for the loop
            cut = Cut.SIGNAL
        return Iteration(CUT_SHORT if cut and cut is not Cut.SIGNAL else status, cut=cut)

    def _forward(self, group: process.Group) -> None:
        number = self._stop.first or signal.SIGTERM
        self._log.event(
            "signal.received",
            f"{signal.Signals(number).name}: the agent is asked to end, then its work is saved",
            signal=number,
            count=self._stop.count,
        )
        group.signal(number)

    def _suspend(self, group: process.Group) -> None:
        self._stop.suspended = False
        group.signal(signal.SIGTSTP)
        suspend()
        group.signal(signal.SIGCONT)

    def _wait(self, deadlines: list[float | None]) -> None:
        """Wait for output, a signal, a child's end or the first deadline, and move output."""
        poll = select.poll()
        poll.register(self._signals.wakeup, select.POLLIN)
        for descriptor, events in self._relay.interest().items():
            poll.register(descriptor, events)
        due = [deadline for deadline in deadlines if deadline is not None]
        timeout = max(0.0, min(due) - time.monotonic()) * 1000 + 1 if due else None
        ready = {descriptor for descriptor, _ in poll.poll(timeout)}
        self._signals.drain()
        self._relay.handle(ready)

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        if self._deadline:
            end = min(end, self._deadline)
        while not self._stop.count and time.monotonic() < end:
            self._wait([end])

    def _tell_ended(self, number: int, iteration: Iteration) -> None:
        self._log.event(
            "iteration.ended",
            iteration=number,
            status=iteration.status,
            promised=iteration.promised,
            changed=iteration.changed,
            cut=iteration.cut.value if iteration.cut else None,
        )


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("prompt", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
