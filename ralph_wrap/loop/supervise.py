"""Wait for a running command, and end it at a signal, a request to stop, or a limit.

The supervisor waits in one ``poll(2)`` for output, signals, the command's end, the next time limit and the
next look for a request to stop.
"""

from __future__ import annotations

import math
import select
import signal
import time
from collections.abc import Callable, Collection, Mapping

from ralph_wrap.loop.iteration_context import IterationContext
from ralph_wrap.loop.policy import CUT_SHORT, CutReason, Iteration
from ralph_wrap.loop.progress import Progress
from ralph_wrap.loop.terminal import Terminal
from ralph_wrap.state.stop_request import StopMode, StopRequests
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.output_relay import OutputRelay
from ralph_wrap.system.process import ProcessGroup
from ralph_wrap.system.process_tree import GroupTermination
from ralph_wrap.system.signals import SignalHandlers, suspend

log = get_logger()

ASKED = {CutReason.SIGNAL, CutReason.STOP, CutReason.TELL}
"""A user or a signal asked for the end; the command's own exit status and promise do not matter."""

_TO_END = {StopMode.SOON, StopMode.NOW}  # requests that do not wait for the agent
_TYPED = {128 + signal.SIGINT, 128 + signal.SIGQUIT}  # exit statuses after Ctrl-C and Ctrl-\\
_LONGEST_POLL = 86400.0  # seconds; poll(2) takes milliseconds in an int, which overflows after 24 days


class AgentSupervisor:
    """Waits for the commands of one session.

    Arguments:
        context: names the child processes, which get the same signals as the command.
        grace: seconds between SIGTERM and SIGKILL.
        relay: moves the output of the command.
        requests: the requests to stop the session.
        progress: the status line to update while waiting.

    """

    def __init__(
        self,
        context: IterationContext,
        grace: float,
        relay: OutputRelay,
        signals: SignalHandlers,
        requests: StopRequests,
        progress: Progress,
    ) -> None:
        self._context = context
        self._grace = grace
        self._relay = relay
        self._signals = signals
        self._cancel = signals.cancel
        self._requests = requests
        self._progress = progress

    def supervise(
        self,
        group: ProcessGroup,
        ending: Termination,
        limits: Callable[[], Mapping[CutReason, float]],
        *,
        name: str = "the agent",
        terminal: Terminal | None = None,
        heeds_messages: bool = True,
    ) -> Iteration:
        """Wait for a command's end.

        Arguments:
            group: the process group of the command.
            ending: the state of its termination.
            limits: returns the time at which each limit is reached, as :func:`time.monotonic` counts.
            name: name of the command, for messages.
            terminal: the terminal that the command uses.
            heeds_messages: an urgent message (``ralph-wrap tell --now``) ends it, too.

        """
        handled = 0
        obeyed: StopMode | None = None
        while (status := group.poll()) is None:
            due = limits()
            if self._cancel.count > handled:
                handled = self._cancel.count
                self._forward(group, name)
                ending.ask(CutReason.SIGNAL, self._grace if handled == 1 else 0.0)
            elif (mode := self._requests.look()) is not obeyed and mode is not StopMode.AFTER_ITERATION:
                obeyed = mode
                self._obey(mode, group, ending)
            elif ending.cut is None and heeds_messages and self._context.inbox.is_urgent():
                log.event("message.urgent", f"tell --now: {name} is asked to end for a message")
                self._send(group, signal.SIGTERM)
                ending.ask(CutReason.TELL, self._grace)
            elif ending.cut is None and (reached := _reached(due)):
                log.warning("limit.reached", f"{_reason(reached)}: {name} is asked to end")
                self._send(group, signal.SIGTERM)
                ending.ask(reached, self._grace)
            if ending.escalate(group):
                status = 128 + signal.SIGKILL  # the command is stuck in the kernel; we can save its work now
                break
            self._follow_stops(group, terminal)
            self.wait(due.values() if ending.cut is None else [ending.deadline], group)
            self._context.process_tree.reap(group.pid)
        if ending.cut is None and terminal is not None and status in _TYPED:
            # The terminal sent Ctrl-C to the agent alone, but the user wants to end the loop.
            self._cancel.record(status - 128)
            self._context.process_tree.signal(status - 128, except_group=group.pid)
            ending.ask(CutReason.SIGNAL, self._grace)
        if ending.cut is None or ending.cut in ASKED:
            return Iteration(status, cut=ending.cut)
        return Iteration(CUT_SHORT, cut=ending.cut)

    def clear_up(self, ending: Termination) -> None:
        """End the processes that a terminated command left running, and read the rest of the output."""
        if ending.cut is not None:
            # They get the rest of the command's grace: one of them may be a session that must save its work.
            self._context.end_leftovers(ending.grace_left)
        self._relay.drain()
        self._relay.restore_screen()  # prints this output before our own messages

    def pause(self, end: float, look: Callable[[], float | None] | None = None) -> None:
        """Wait until a time, or until a signal or a request asks for the end.

        Arguments:
            end: the time, as :func:`time.monotonic` counts.
            look: called at each wake-up; returns the time of the next wake-up, ``None`` to stop waiting.

        """
        while not self._cancel.requested and not self._requests.look() and time.monotonic() < end:
            again = look() if look else end
            if again is None:
                return
            self.wait([end, again])
            if self._signals.suspended:
                self._signals.suspended = False
                self._suspend()

    def wait(self, deadlines: Collection[float], group: ProcessGroup | None = None) -> None:
        """Wait for output, a signal, the command's end or the first deadline, and move the output."""
        poll = select.poll()
        for descriptor in (self._signals.wakeup, group.pidfd if group else -1):
            if descriptor >= 0:
                poll.register(descriptor, select.POLLIN)
        for descriptor, events in self._relay.interest().items():
            poll.register(descriptor, events)
        if not self._relay.is_held_up:
            self._progress.show()
        beat = self._context.beat(lambda: self._is_something_due(deadlines, group))
        first = min([*deadlines, self._requests.due, self._progress.due, beat])
        timeout = min(max(0.0, first - time.monotonic()), _LONGEST_POLL)
        ready = {descriptor for descriptor, _ in poll.poll(timeout * 1000 + 1)}
        self._signals.drain()
        self._relay.handle(ready)

    def _is_something_due(self, deadlines: Collection[float], group: ProcessGroup | None) -> bool:
        """Return whether a look at the worktree must end: it may take seconds."""
        return (
            time.monotonic() >= min(deadlines, default=math.inf)
            or self._requests.look() in _TO_END
            or (group is not None and (group.poll() is not None or self._context.inbox.is_urgent()))
        )

    def _obey(self, mode: StopMode | None, group: ProcessGroup, ending: Termination) -> None:
        if (
            mode is StopMode.SOON and ending.cut is None
        ):  # a second SIGTERM would shorten the grace of a nested session
            self._send(group, signal.SIGTERM)
        cut = CutReason.SIGNAL if ending.cut is CutReason.SIGNAL else CutReason.STOP
        ending.ask(cut, self._grace if mode is StopMode.SOON else 0.0)

    def _forward(self, group: ProcessGroup, name: str) -> None:
        number = self._cancel.first or signal.SIGTERM
        effect = "is asked to end" if self._cancel.count == 1 else "gets no more time"
        again = "" if self._cancel.count == 1 else " again"
        log.event(
            "signal.received",
            f"{signal.Signals(number).name}{again}: {name} {effect}, then its work is saved",
            signal=number,
            count=self._cancel.count,
        )
        self._send(group, number)

    def _send(self, group: ProcessGroup, number: int) -> None:
        for sent in (number, signal.SIGCONT):  # a stopped process handles SIGTERM only after SIGCONT
            group.signal(sent)
            self._context.process_tree.signal(sent, except_group=group.pid)

    def _suspend(self) -> None:
        self._progress.hide()
        suspend()

    def _follow_stops(self, group: ProcessGroup, terminal: Terminal | None) -> None:
        """After Ctrl-Z, stop ourselves when the command has stopped, or the other way round."""
        if self._signals.suspended:
            self._signals.suspended = False
            group.signal(signal.SIGTSTP)
            self._suspend()
            group.signal(signal.SIGCONT)
        if terminal is not None and group.stopped():
            terminal.suspend_with(group)


class Termination(GroupTermination):
    """The termination of a command by the loop, with its cause.

    Attributes:
        cut: the cause; ``None`` if the command was not asked to end.

    """

    def __init__(self) -> None:
        super().__init__()
        self.cut: CutReason | None = None

    def ask(self, cut: CutReason, grace: float) -> None:
        """Record that the command was asked to end; the latest cause counts, and the earliest deadline."""
        self.limit(grace)
        self.cut = cut


def _reason(reached: CutReason) -> str:
    if reached is CutReason.AFTER_PROMISE:
        return "the promise is kept, but the agent did not end in time"
    return f"{reached.value} reached"


def _reached(limits: Mapping[CutReason, float]) -> CutReason | None:
    now = time.monotonic()
    return next((limit for limit, deadline in limits.items() if now >= deadline), None)
