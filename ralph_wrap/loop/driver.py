"""Run the agent again and again, and obey the policy.

While an agent works, the driver waits in one ``poll(2)`` for output, signals, requests to stop, the agent's
end and the next time limit. Without any of them it wakes up only to look for such a request, now and then.
"""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap import process
from ralph_wrap.files import write_all
from ralph_wrap.loop.policy import CUT_SHORT, Cut, End, GoOn, Iteration, LoopResult, State, after
from ralph_wrap.loop.terminal import find_terminal
from ralph_wrap.loop.unstarted import unstarted
from ralph_wrap.offspring import UNKILLABLE_AFTER
from ralph_wrap.request import How, Requests
from ralph_wrap.signals import suspend

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ralph_wrap.config import Settings
    from ralph_wrap.log import Log
    from ralph_wrap.offspring import Offspring
    from ralph_wrap.relay import LineFinder, Relay
    from ralph_wrap.signals import Signals

_TYPED = {128 + signal.SIGINT, 128 + signal.SIGQUIT}  # exit statuses after Ctrl-C and Ctrl-\\
_ASKED = {Cut.SIGNAL, Cut.STOP}  # somebody wants the end, whatever the agent has said until then
_LONGEST_POLL = 86400.0  # seconds; poll(2) counts milliseconds in an int, which ends after 24 days


class Stage(NamedTuple):
    """What an agent is run with; the same for every iteration.

    Attributes:
        directory: the session's own, where requests to stop come.
        inherited: a descriptor that it, and what it starts, keep open.
        cwd: its working directory.
        environ: its environment.
        fingerprint: tells one state of the workspace from another; empty if it cannot be told.
        pristine: what *fingerprint* would return before the first iteration, where that is known.
        begin: called with the iteration's number before each one.
        spawned: called each time an agent has started.
        offspring: what the agent has started.
        end_leftovers: ends that, which was asked to, with so many seconds of grace.

    """

    directory: Path
    inherited: int
    cwd: Path
    environ: Mapping[str, str]
    fingerprint: Callable[[], str]
    pristine: str
    begin: Callable[[int], None]
    spawned: Callable[[], None]
    offspring: Offspring
    end_leftovers: Callable[[float], object]


class Driver:
    """Runs iterations until the policy, a signal, a request to stop or a time limit ends them.

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
        self._requests = Requests(stage.directory, log)
        self._log = log
        self._deadline = time.monotonic() + settings.max_time if settings.max_time else None
        self._terminal = find_terminal(settings)
        log.share_terminal(stage.directory / "output.log")

    def run(self) -> LoopResult:
        """Run the loop to its end.

        Raises:
            AgentError: the agent could not be executed.

        """
        with self._requests:
            return self._run()

    def _run(self) -> LoopResult:
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
            if self._requests.look():
                return LoopResult("stop", 0, state.iterations)
            if self._deadline and time.monotonic() >= self._deadline:
                return LoopResult("max-time", status, state.iterations)
            iteration = self._iterate(number)
            iteration = iteration._replace(last=self._requests.look() is not None)
            status = iteration.status
            now = ""
            if (
                before
                and not iteration.last
                and number != settings.max_iterations
                and not iteration.promised
                and iteration.cut is None
            ):
                now = self._stage.fingerprint()
                iteration = iteration._replace(changed=now != before if now else None)
            state, decision = after(settings, state, iteration)
            self._tell_ended(number, iteration, decision)
            if iteration.cut is Cut.SIGNAL:
                return self._signalled(number)
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
                "prompt.failed",
                f"prompt file {self._settings.prompt_file} cannot be read: {error.strerror}",
                "the iteration counts as failed",
            )
            return Iteration(1)
        ending = _Ending()
        with self._terminal.lent():
            try:
                group = self._spawn(stdin, number)
            finally:
                if stdin is not None:
                    os.close(stdin)
            self._stage.spawned()
            self._log.event("agent.started", pid=group.pid, command=list(self._settings.command))
            iteration = self._watch(group, ending)
        if iteration.cut is not None:
            # An agent that ends at once leaves the rest of its grace to them: a session in it has to save.
            self._stage.end_leftovers(ending.grace_left)
        self._relay.drain()
        self._relay.handle(set())  # what follows is ours: it is read behind the agent's words
        self._log.event("agent.exited", pid=group.pid, status=iteration.status)
        return iteration._replace(promised=self._answer.finish() and iteration.cut not in _ASKED)

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
                inherited=self._stage.inherited,
                terminal=self._terminal.descriptor,
            )
        except OSError as error:
            isolated = bool(self._stage.environ.get("RALPH_BRANCH"))
            raise unstarted(error, command[0], cwd, self._settings.project, isolated=isolated) from None

    def _prompt(self) -> int | None:
        """Return a descriptor to read the prompt from; a file, so that an agent may read it when it likes."""
        if self._settings.prompt_file is not None:
            content = self._settings.prompt_file.read_bytes()
        elif self._settings.prompt is not None:
            content = self._settings.prompt.encode("utf-8", "surrogateescape")
        else:
            return None
        descriptor = process.anonymous_file()
        write_all(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def _watch(self, group: process.Group, ending: _Ending) -> Iteration:
        begun = self._relay.last_output = time.monotonic()
        heard = 0
        obeyed: How | None = None
        while (status := group.poll()) is None:
            limits = self._limits(begun)
            if self._stop.count > heard:
                heard = self._stop.count
                self._forward(group)
                ending.ask(Cut.SIGNAL, self._settings.grace if heard == 1 else 0.0)
            elif (how := self._requests.look()) is not obeyed and how is not How.AFTER_ITERATION:
                obeyed = how
                self._obey(how, group, ending)
            elif ending.cut is None and (due := _due(limits)):
                self._log.warning("limit.reached", f"{due.value} reached: the agent is asked to end")
                self._tell(group, signal.SIGTERM)
                ending.ask(due, self._settings.grace)
            if ending.escalate(group):
                status = 128 + signal.SIGKILL  # it hangs in the kernel; its work can be saved all the same
                break
            self._follow_stops(group)
            self._wait(limits.values() if ending.cut is None else [ending.deadline], group)
            self._stage.offspring.reap(group.pid)
        if ending.cut is None and self._terminal.descriptor is not None and status in _TYPED:
            # The terminal sent it to the agent alone, but it is meant for the loop.
            self._stop.record(status - 128)
            self._stage.offspring.signal(status - 128, except_group=group.pid)
            ending.ask(Cut.SIGNAL, self._settings.grace)
        if ending.cut is None or ending.cut in _ASKED:
            return Iteration(status, cut=ending.cut)
        return Iteration(CUT_SHORT, cut=ending.cut)

    def _obey(self, how: How | None, group: process.Group, ending: _Ending) -> None:
        if how is How.SOON and ending.cut is None:  # a session inside ours would be hurried by a second one
            self._tell(group, signal.SIGTERM)
        cut = Cut.SIGNAL if ending.cut is Cut.SIGNAL else Cut.STOP
        ending.ask(cut, self._settings.grace if how is How.SOON else 0.0)

    def _limits(self, begun: float) -> dict[Cut, float]:
        """Return when each time limit ends an iteration that began at a time."""
        settings = self._settings
        limits = {}
        if self._deadline is not None:
            limits[Cut.MAX_TIME] = self._deadline
        if settings.iteration_timeout:
            limits[Cut.ITERATION_TIMEOUT] = begun + settings.iteration_timeout
        if settings.idle_timeout and self._terminal.descriptor is None:
            # An agent whose output our reader does not take is not idle.
            last = time.monotonic() if self._relay.is_held_up else self._relay.last_output
            limits[Cut.IDLE_TIMEOUT] = last + settings.idle_timeout
        return limits

    def _forward(self, group: process.Group) -> None:
        number = self._stop.first or signal.SIGTERM
        what = "is asked to end" if self._stop.count == 1 else "gets no more time"
        again = "" if self._stop.count == 1 else " again"
        self._log.event(
            "signal.received",
            f"{signal.Signals(number).name}{again}: the agent {what}, then its work is saved",
            signal=number,
            count=self._stop.count,
        )
        self._tell(group, number)

    def _tell(self, group: process.Group, number: int) -> None:
        for each in (number, signal.SIGCONT):  # a stopped process does not see what asks it to end
            group.signal(each)
            self._stage.offspring.signal(each, except_group=group.pid)

    def _follow_stops(self, group: process.Group) -> None:
        """Stop with the agent, or the agent with us, after Ctrl-Z."""
        if self._stop.suspended:
            self._stop.suspended = False
            group.signal(signal.SIGTSTP)
            suspend()
            group.signal(signal.SIGCONT)
        if self._terminal.descriptor is not None and group.stopped():
            self._terminal.suspend_with(group)

    def _wait(self, deadlines: Collection[float], group: process.Group | None = None) -> None:
        """Wait for output, a signal, a request, the agent's end or the first deadline, and move output."""
        poll = select.poll()
        for descriptor in (self._signals.wakeup, self._requests.descriptor, group.pidfd if group else -1):
            if descriptor >= 0:
                poll.register(descriptor, select.POLLIN)
        for descriptor, events in self._relay.interest().items():
            poll.register(descriptor, events)
        first = min([*deadlines, self._requests.due])
        timeout = min(max(0.0, first - time.monotonic()), _LONGEST_POLL)
        ready = {descriptor for descriptor, _ in poll.poll(timeout * 1000 + 1)}
        self._signals.drain()
        self._relay.handle(ready)

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        if self._deadline:
            end = min(end, self._deadline)
        while not self._stop.count and not self._requests.look() and time.monotonic() < end:
            self._wait([end])
            if self._stop.suspended:
                self._stop.suspended = False
                suspend()

    def _tell_ended(self, number: int, iteration: Iteration, decision: GoOn | End) -> None:
        message = ""
        if iteration.failed and iteration.cut not in _ASKED:
            message = f"iteration {number} failed with status {iteration.status}"
            if isinstance(decision, GoOn):
                message += f", next in {decision.pause:g}s"
        self._log.event(
            "iteration.ended",
            message,
            iteration=number,
            status=iteration.status,
            promised=iteration.promised,
            changed=iteration.changed,
            cut=iteration.cut.value if iteration.cut else None,
        )


class _Ending:
    """How an agent is brought to its end: asked, killed, given up.

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
        """Note that the agent was asked to end; asked again, the sooner end counts."""
        end = time.monotonic() + grace
        if not self._killed:
            self.deadline = min(self.deadline, end) if self.cut else end
        self.cut = cut

    def escalate(self, group: process.Group) -> bool:
        """Do what is due; tell whether there is nothing left to do."""
        if self.cut is None or time.monotonic() < self.deadline:
            return False
        if self._killed:
            return True
        group.signal(signal.SIGKILL)
        self._killed = True
        self.deadline = time.monotonic() + UNKILLABLE_AFTER
        return False


def _due(limits: Mapping[Cut, float]) -> Cut | None:
    now = time.monotonic()
    return next((limit for limit, deadline in limits.items() if now >= deadline), None)
