"""Wait beside a running command, and bring it to its end when somebody asks for that or a limit is reached.

While it works, the overseer waits in one ``poll(2)`` for output, signals, requests to stop, the command's end
and the next time limit. Without any of them it wakes up only to look for such a request, now and then.
"""

from __future__ import annotations

import select
import signal
import time
from typing import TYPE_CHECKING

from ralph_wrap.loop.policy import CUT_SHORT, Cut, Iteration
from ralph_wrap.state.stop_request import How
from ralph_wrap.system.process_tree import UNKILLABLE_AFTER
from ralph_wrap.system.signals import suspend

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ralph_wrap.loop.iteration_context import Stage
    from ralph_wrap.loop.progress import Progress
    from ralph_wrap.loop.terminal import Terminal
    from ralph_wrap.state.stop_request import Requests
    from ralph_wrap.system.log import Log
    from ralph_wrap.system.output_relay import Relay
    from ralph_wrap.system.process import Group
    from ralph_wrap.system.signals import Signals

ASKED = {Cut.SIGNAL, Cut.STOP}
"""Somebody wants the end, whatever the command has said until then."""

_TYPED = {128 + signal.SIGINT, 128 + signal.SIGQUIT}  # exit statuses after Ctrl-C and Ctrl-\\
_LONGEST_POLL = 86400.0  # seconds; poll(2) counts milliseconds in an int, which ends after 24 days


class Overseer:
    """Waits beside the commands of one session.

    Arguments:
        stage: whose offspring is told what the command is told.
        grace: seconds between asking for the end and killing.
        relay: where the command's output goes.
        requests: entered.
        progress: shown while we wait.

    """

    def __init__(
        self,
        stage: Stage,
        grace: float,
        relay: Relay,
        signals: Signals,
        requests: Requests,
        progress: Progress,
        log: Log,
    ) -> None:
        self._stage = stage
        self._grace = grace
        self._relay = relay
        self._signals = signals
        self._stop = signals.stop
        self._requests = requests
        self._progress = progress
        self._log = log

    def oversee(
        self,
        group: Group,
        ending: Ending,
        limits: Callable[[], Mapping[Cut, float]],
        *,
        name: str = "the agent",
        terminal: Terminal | None = None,
    ) -> Iteration:
        """Wait for a command's end.

        Arguments:
            group: the command.
            ending: how it is brought to its end.
            limits: tells when each time limit is reached, as :func:`time.monotonic` counts.
            name: of the command, for people.
            terminal: lent to it.

        """
        heard = 0
        obeyed: How | None = None
        while (status := group.poll()) is None:
            due = limits()
            if self._stop.count > heard:
                heard = self._stop.count
                self._forward(group, name)
                ending.ask(Cut.SIGNAL, self._grace if heard == 1 else 0.0)
            elif (how := self._requests.look()) is not obeyed and how is not How.AFTER_ITERATION:
                obeyed = how
                self._obey(how, group, ending)
            elif ending.cut is None and (reached := _reached(due)):
                self._log.warning("limit.reached", f"{_reason(reached)}: {name} is asked to end")
                self._tell(group, signal.SIGTERM)
                ending.ask(reached, self._grace)
            if ending.escalate(group):
                status = 128 + signal.SIGKILL  # it hangs in the kernel; its work can be saved all the same
                break
            self._follow_stops(group, terminal)
            self.wait(due.values() if ending.cut is None else [ending.deadline], group)
            self._stage.offspring.reap(group.pid)
        if ending.cut is None and terminal is not None and status in _TYPED:
            # The terminal sent it to the agent alone, but it is meant for the loop.
            self._stop.record(status - 128)
            self._stage.offspring.signal(status - 128, except_group=group.pid)
            ending.ask(Cut.SIGNAL, self._grace)
        if ending.cut is None or ending.cut in ASKED:
            return Iteration(status, cut=ending.cut)
        return Iteration(CUT_SHORT, cut=ending.cut)

    def clear_up(self, ending: Ending) -> None:
        """End what a command that was brought to its end has left, and take what is said by then."""
        if ending.cut is not None:
            # A command that ends at once leaves the rest of its grace to them: a session in it has to save.
            self._stage.end_leftovers(ending.grace_left)
        self._relay.drain()
        self._relay.handle(set())  # what follows is ours: it is read behind the command's words

    def pause(self, end: float, look: Callable[[], float | None] | None = None) -> None:
        """Wait for a moment, as :func:`time.monotonic` counts, or for whoever wants the end before.

        Arguments:
            end: the moment.
            look: called whenever we wake up; returns when to wake up again, ``None`` to wait no longer.

        """
        while not self._stop.count and not self._requests.look() and time.monotonic() < end:
            again = look() if look else end
            if again is None:
                return
            self.wait([end, again])
            if self._stop.suspended:
                self._stop.suspended = False
                self._suspend()

    def wait(self, deadlines: Collection[float], group: Group | None = None) -> None:
        """Wait for output, a signal, a request, the command's end or the first deadline, and move output."""
        poll = select.poll()
        for descriptor in (self._signals.wakeup, self._requests.descriptor, group.pidfd if group else -1):
            if descriptor >= 0:
                poll.register(descriptor, select.POLLIN)
        for descriptor, events in self._relay.interest().items():
            poll.register(descriptor, events)
        if not self._relay.is_held_up:
            self._progress.show()
        first = min([*deadlines, self._requests.due])
        timeout = min(max(0.0, first - time.monotonic()), _LONGEST_POLL)
        ready = {descriptor for descriptor, _ in poll.poll(timeout * 1000 + 1)}
        self._signals.drain()
        self._relay.handle(ready)

    def _obey(self, how: How | None, group: Group, ending: Ending) -> None:
        if how is How.SOON and ending.cut is None:  # a session inside ours would be hurried by a second one
            self._tell(group, signal.SIGTERM)
        cut = Cut.SIGNAL if ending.cut is Cut.SIGNAL else Cut.STOP
        ending.ask(cut, self._grace if how is How.SOON else 0.0)

    def _forward(self, group: Group, name: str) -> None:
        number = self._stop.first or signal.SIGTERM
        what = "is asked to end" if self._stop.count == 1 else "gets no more time"
        again = "" if self._stop.count == 1 else " again"
        self._log.event(
            "signal.received",
            f"{signal.Signals(number).name}{again}: {name} {what}, then its work is saved",
            signal=number,
            count=self._stop.count,
        )
        self._tell(group, number)

    def _tell(self, group: Group, number: int) -> None:
        for each in (number, signal.SIGCONT):  # a stopped process does not see what asks it to end
            group.signal(each)
            self._stage.offspring.signal(each, except_group=group.pid)

    def _suspend(self) -> None:
        self._progress.hide()
        suspend()

    def _follow_stops(self, group: Group, terminal: Terminal | None) -> None:
        """Stop with the command, or the command with us, after Ctrl-Z."""
        if self._stop.suspended:
            self._stop.suspended = False
            group.signal(signal.SIGTSTP)
            self._suspend()
            group.signal(signal.SIGCONT)
        if terminal is not None and group.stopped():
            terminal.suspend_with(group)


class Ending:
    """How a command is brought to its end: asked, killed, given up.

    Attributes:
        cut: why; ``None`` while nobody has asked for it.
        deadline: when the next step is due, once it was asked.

    """

    def __init__(self) -> None:
        self.cut: Cut | None = None
        self.deadline = 0.0
        self._killed = False

    @property
    def grace_left(self) -> float:
        """Seconds until whatever is left is killed."""
        return 0.0 if self._killed else max(0.0, self.deadline - time.monotonic())

    def ask(self, cut: Cut, grace: float) -> None:
        """Note that the command was asked to end; asked again, the sooner end counts."""
        end = time.monotonic() + grace
        if not self._killed:
            self.deadline = min(self.deadline, end) if self.cut else end
        self.cut = cut

    def escalate(self, group: Group) -> bool:
        """Do what is due; tell whether there is nothing left to do."""
        if self.cut is None or time.monotonic() < self.deadline:
            return False
        if self._killed:
            return True
        group.signal(signal.SIGKILL)
        self._killed = True
        self.deadline = time.monotonic() + UNKILLABLE_AFTER
        return False


def _reason(reached: Cut) -> str:
    if reached is Cut.AFTER_PROMISE:
        return "the promise is kept, and its time to end is over"
    return f"{reached.value} reached"


def _reached(limits: Mapping[Cut, float]) -> Cut | None:
    now = time.monotonic()
    return next((limit for limit, deadline in limits.items() if now >= deadline), None)
