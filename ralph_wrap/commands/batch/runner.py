"""Run the sessions of a batch, a few at once, until all have ended or a limit is reached."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ralph_wrap.commands.batch.plan import OpenTask
from ralph_wrap.commands.batch.session import BatchSession
from ralph_wrap.commands.batch.state import BatchState, new_task
from ralph_wrap.config.task_file import Task
from ralph_wrap.errors import RalphError
from ralph_wrap.loop.usage_limit_wait import clock
from ralph_wrap.state.report import NOT_LOGGED_IN
from ralph_wrap.system.log import current, get_logger
from ralph_wrap.system.signals import SignalHandlers
from ralph_wrap.system.text import shortened, span
from ralph_wrap.system.uptime import uptime

log = get_logger()

_TICK = 1000.0  # milliseconds between two updates of the status line
_TITLE = 48  # columns


class BatchLimits(NamedTuple):
    """The limits of a whole batch.

    Attributes:
        jobs: number of sessions at once.
        max_cost: in US dollars; 0 for no limit.
        max_time: in seconds; ``None`` for no limit.

    """

    jobs: int = 1
    max_cost: float = 0.0
    max_time: float | None = None


class StartedProcess(NamedTuple):
    """The process of a session.

    Attributes:
        pid: its process id; it is our child.
        events: the session writes its events into this pipe, a line of JSON each; it does not block.

    """

    pid: int
    events: int


class BatchRunner:
    """Runs the sessions of a batch.

    Arguments:
        tasks: the tasks to do, in their order.
        limits: of the batch.
        state: remembers each change before it counts.
        start: starts the process of a session, given the task and its token.
        signals: entered handlers.

    Attributes:
        ended_by: ``signal``, ``max-cost``, ``max-time``, ``usage-limit`` or ``not-logged-in``, if one of them
            ended the batch before its last task; empty otherwise.

    """

    def __init__(
        self,
        tasks: Sequence[OpenTask],
        limits: BatchLimits,
        state: BatchState,
        start: Callable[[OpenTask, str], StartedProcess],
        signals: SignalHandlers,
    ) -> None:
        self.ended_by = ""
        self._queue = [*tasks]
        self._count = len(tasks)
        self._limits = limits
        self._state = state
        self._start = start
        self._signals = signals
        self._running: list[BatchSession] = []
        self._forwarded = 0
        self._began = time.monotonic()
        self._limited_until = 0.0  # in seconds since the epoch
        self._paused_until = 0.0  # the same by the clock that nobody sets
        self._announced = 0.0

    def run(self) -> None:
        """Run all sessions; on every way out, no session of the batch runs any more.

        Raises:
            OSError: the state cannot be written. The sessions have ended, with their work saved.

        """
        try:
            while self._running or (self._queue and not self.ended_by):
                self._check_limits()
                self._start_some()
                self._wait()
                self._forward()
                self._collect()
        finally:
            current().progress("")
            self._end_all()

    def _start_some(self) -> None:
        while self._queue and not self.ended_by and len(self._running) < self._limits.jobs:
            if uptime() < self._paused_until:
                self._pause()
                return
            self._begin(self._queue.pop(0))

    def _pause(self) -> None:
        """Start no session before the end of a usage limit: it would only wait for it."""
        if self._announced < self._limited_until:
            self._announced = self._limited_until
            message = (
                f"the account's usage limit is reached: no session starts before {clock(self._announced)}"
            )
            log.event("batch.paused", message, until=self._announced)

    def _begin(self, wanted: OpenTask) -> None:
        key = wanted.task.key
        if not wanted.session:  # a session of an earlier token never began
            self._state.keep(key, new_task())
        try:
            process = self._start(wanted, self._state.tasks[key].token)
        except RalphError as error:
            log.error("task.not_started", f"{_title(wanted.task)}: {error.message}", error.hint)
            self._state.keep(
                key,
                self._state.tasks[key]._replace(ended_by="not-started", exit_status=error.exit_code),
            )
            return
        self._running.append(BatchSession(wanted, process.pid, process.events, self._state.tasks[key]))

    def _wait(self) -> None:
        """Wait for an event of a session, a signal, or the next limit."""
        if not self._running and not self._queue:
            return
        poll = select.poll()
        for descriptor in (self._signals.wakeup, *(each.events for each in self._running if each.is_open)):
            poll.register(descriptor, select.POLLIN)
        self._show()
        poll.poll(self._timeout())
        self._signals.drain()

    def _timeout(self) -> float | None:
        """Return the time until something must be looked at without an event, in milliseconds."""
        waits = [_TICK] if current().shows_progress else []
        if self._limits.max_time is not None and not self.ended_by:
            waits.append(1000 * (self._began + self._limits.max_time - time.monotonic()))
        if self._queue and not self.ended_by and len(self._running) < self._limits.jobs:  # paused
            waits.append(1000 * (self._paused_until - uptime()))
        return max(0.0, min(waits)) + 1 if waits else None

    def _show(self) -> None:
        done = self._count - len(self._queue) - len(self._running)
        cost = f" · ${self._state.spent:.2f}" if self._state.spent else ""
        time_used = span(time.monotonic() - self._began)
        names = ", ".join(session.id for session in self._running if session.id)
        current().progress(f"{done} of {self._count} ended · running: {names or '-'} · {time_used}{cost}")

    def _check_limits(self) -> None:
        limits = self._limits
        if limits.max_cost and self._state.spent >= limits.max_cost:
            self._stop(
                "max-cost",
                f"--batch-max-cost: ${self._state.spent:.2f} is spent",
                "to go on, type a higher limit: it counts all starts of this batch",
            )
        elif limits.max_time is not None and time.monotonic() >= self._began + limits.max_time:
            self._stop("max-time", "--batch-max-time: the time is over")

    def _stop(self, reason: str, message: str, hint: str = "") -> None:
        """Start no more sessions, and ask those that run to end."""
        if self.ended_by:
            return
        self.ended_by = reason
        what = "the sessions end, and their work is saved" if self._running else "no more sessions start"
        log.warning("batch.stopped", f"{message}; {what}", hint)
        self._signal(signal.SIGTERM)

    def _forward(self) -> None:
        """Pass each signal on: the second one takes the grace away, as in ``run``."""
        cancel = self._signals.cancel
        while self._forwarded < cancel.count:
            self._forwarded += 1
            if self._forwarded == 1 and self._running:
                log.event("batch.stopped", "a signal came: the sessions end, and their work is saved")
            self.ended_by = "signal"
            self._signal(cancel.first or signal.SIGTERM)

    def _signal(self, number: int) -> None:
        for session in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(session.pid, number)

    def _collect(self) -> None:
        for session in [*self._running]:
            has_ended = session.look()
            for event in session.read():
                self._hear(session, event)
            if has_ended:
                self._finish(session)

    def _hear(self, session: BatchSession, event: dict[str, object]) -> None:
        line = session.hear(event)
        if session.state != self._state.tasks[session.key]:
            self._state.keep(session.key, session.state)
        if session.limited_until > self._limited_until:
            self._limited_until = session.limited_until
            self._paused_until = uptime() + session.limited_until - time.time()
        if line is not None:
            line.print_on()

    def _finish(self, session: BatchSession) -> None:
        self._running.remove(session)
        os.close(session.events)
        line = session.finished()
        self._state.keep(session.key, session.state)
        line.print_on()
        if session.state.ended_by == "signal" and not self.ended_by:
            # docker stop sends one to each session. A second one from us would take away the time to save.
            self.ended_by = "signal"
            log.warning("batch.stopped", "a signal ended a session; no more sessions start")
        elif session.state.ended_by == NOT_LOGGED_IN and not self.ended_by:
            self.ended_by = NOT_LOGGED_IN
            log.warning("batch.stopped", "the agent is not logged in; no more sessions start")
        elif session.state.ended_by == "usage-limit" and uptime() >= self._paused_until:
            self._stop("usage-limit", "the account's usage limit is reached")

    def _end_all(self) -> None:
        """End what still runs after an error: a batch leaves no session behind."""
        self._signal(signal.SIGTERM)
        for session in self._running:
            session.wait()


def _title(task: Task) -> str:
    return shortened(task.title, _TITLE)
