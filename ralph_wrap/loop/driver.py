"""Run the agent again and again, as the policy decides."""

from __future__ import annotations

import time

from ralph_wrap.config import OnLeak, Settings
from ralph_wrap.errors import RalphError
from ralph_wrap.loop.agent_report import FAILED
from ralph_wrap.loop.gate import Gate
from ralph_wrap.loop.iteration import IterationRunner
from ralph_wrap.loop.iteration_context import IterationContext
from ralph_wrap.loop.limits import PROMISE_GRACE
from ralph_wrap.loop.listener import OutputListener
from ralph_wrap.loop.policy import (
    CUT_SHORT,
    CutReason,
    EndLoop,
    Iteration,
    LoopResult,
    LoopState,
    NextIteration,
    RepeatIteration,
    after,
    needs_gate,
)
from ralph_wrap.loop.progress import Progress
from ralph_wrap.loop.project_command import CommandRunner
from ralph_wrap.loop.setup import set_up
from ralph_wrap.loop.supervise import ASKED, AgentSupervisor
from ralph_wrap.loop.terminal import find_terminal
from ralph_wrap.loop.turns import Turns
from ralph_wrap.loop.usage_limit_wait import UsageLimitWait, clock
from ralph_wrap.system.log import current, get_logger
from ralph_wrap.system.output_relay import OutputRelay
from ralph_wrap.system.signals import SignalHandlers
from ralph_wrap.system.text import command

log = get_logger()

_LOOK_FOR_ROOM = 2.0  # seconds between two looks at a full disk


class Driver:
    """Runs iterations until the policy, a signal, a request to stop or a time limit ends them.

    Arguments:
        settings: the limits, the command, the prompt.
        context: directory, environment and callbacks for each iteration.
        relay: moves the output of the agent.
        listener: reads the stdout of the agent.
        signals: a context that was entered; its signals end the loop.
        promise_grace: seconds that an agent may keep running after its promise.

    Attributes:
        gate: proves that the work is done; ``None`` without one.
        turns: the agents of the session.

    """

    def __init__(
        self,
        settings: Settings,
        context: IterationContext,
        relay: OutputRelay,
        listener: OutputListener,
        signals: SignalHandlers,
        *,
        promise_grace: float = PROMISE_GRACE,
    ) -> None:
        self._settings = settings
        self._context = context
        self._relay = relay
        self._cancel = signals.cancel
        self._requests = context.requests
        self._deadline = time.monotonic() + settings.max_time if settings.max_time else None
        self._started = 0
        terminal = find_terminal(settings)
        shown = relay.share(current().last_line) and terminal.descriptor is None
        self._progress = Progress(settings, context, listener, shown=shown)
        self._supervisor = AgentSupervisor(
            context, settings.grace, relay, signals, self._requests, self._progress
        )
        # .ralph/run/sessions/<session> belongs to the session, .ralph/run to the project
        self.turns = Turns(settings, context.environ, context.directory.parents[1] / "limits")
        self._listener = listener
        self._runner = IterationRunner(
            self.turns,
            settings,
            context,
            relay,
            listener,
            self._supervisor,
            terminal,
            deadline=self._deadline,
            promise_grace=promise_grace,
        )
        self._commands = CommandRunner(context, relay, self._supervisor, self._deadline)
        environ = self.turns.now.environ
        self.gate = Gate(settings, self._commands, context, relay, environ) if settings.verify else None
        self._usage_limit_waits = {
            agent.name: UsageLimitWait(agent.account, self._supervisor, self._progress)
            for agent in self.turns.all
        }

    def run(self) -> LoopResult:
        """Run the setup command, then the loop to its end.

        Raises:
            AgentError: the agent could not be executed.
            SetupError: the setup command failed.

        """
        with self._progress:
            status, pristine = 0, self._context.pristine
            if self._settings.setup and not self._ended_early(0):
                try:
                    if set_up(self._settings, self._context, self._commands):
                        status = CUT_SHORT
                finally:
                    self._context.look_outside("during setup")
                if not self._context.mend():
                    return LoopResult("leak", RalphError.exit_code, 0)
                pristine = ""
            return self._run(pristine, status)

    def _run(self, pristine: str, status: int) -> LoopResult:
        settings = self._settings
        state = LoopState()
        before = ""
        if (settings.max_stalls or settings.verify_each) and not self._ended_early(status):
            with self._context.interrupted_when(self._must_end):
                before = pristine or self._context.look()
        while True:
            if ended := (
                self._wait_for_room(status)
                or self._wait_for_account(state, status)
                or self._ended_early(status)
            ):
                return ended
            number = self._started = state.iterations + 1
            iteration, now = self._iterate(number, before)
            status = iteration.status
            state, decision = self._decide(state, iteration)
            if settings.on_leak is OnLeak.REPORT and not isinstance(decision, EndLoop):
                # After the last iteration the session looks, while it saves the worktree.
                self._context.look_outside(f"during iteration {number}")
            if iteration.refused is not None:  # before a snapshot takes time
                hold = decision.hold if isinstance(decision, RepeatIteration) else 0.0
                agent = self.turns.now.name
                self._usage_limit_waits[agent].begin(
                    iteration.refused, hold, agent, has_others=self.turns.has_others
                )
            self._log_end(number, iteration, decision)
            if iteration.cut is CutReason.SIGNAL:
                return self._signalled()
            if settings.commit_each or not isinstance(decision, EndLoop):
                with self._context.interrupted_when(self._must_end):
                    is_final = not isinstance(decision, RepeatIteration)
                    now = self._context.hand_over(number, now, is_final) or now
            if isinstance(decision, EndLoop):
                return LoopResult(
                    decision.ended_by, decision.status, number, iteration.question, iteration.logged_out
                )
            before = before if isinstance(decision, RepeatIteration) else now or before
            if isinstance(decision, NextIteration) and decision.pause:
                self._pause(decision.pause, number + 1)
                self._context.look_outside(f"after iteration {number}")

    def _decide(
        self, state: LoopState, iteration: Iteration
    ) -> tuple[LoopState, NextIteration | RepeatIteration | EndLoop]:
        """Decide the step after an iteration; each agent has its own count of refusals."""
        if self.turns.set_aside(iteration):
            return state, RepeatIteration(0.0)
        agent = self.turns.now
        state, decision = after(
            self._settings, state._replace(holds=agent.holds), iteration, self._settings.on_leak
        )
        agent.holds = state.holds
        return state, decision

    def _iterate(self, number: int, before: str) -> tuple[Iteration, str]:
        """Run one iteration, and compare the workspace if its changes matter for the decision.

        Arguments:
            before: the state of the workspace before the iteration; empty if none is needed.

        Returns:
            The result, and the new state; empty if nobody has looked.

        """
        self._context.begin(number, self.turns.instead)
        self._listener.change_format(self.turns.now.settings.invocation.output)
        log.event("iteration.started", iteration=number, agent=self.turns.now.name)
        self._progress.begin(number)
        gate = self.gate
        iteration = self._runner.run(number, gate.part if gate else b"")
        iteration = iteration._replace(
            last=self._requests.look_now() is not None,
            leaked=self._settings.on_leak is OnLeak.STOP
            and self._context.look_outside(f"during iteration {number}"),
            lost=not self._context.mend(),
        )
        now = ""
        if before and self._matters(number, iteration):
            now = self._look()
            iteration = iteration._replace(changed=now != before if now else None)
        if gate:
            iteration, now = self._through_gate(number, iteration, now)
        return self._with_news(iteration), now

    def _with_news(self, iteration: Iteration) -> Iteration:
        """Return the iteration with whether its agent lacks a message: then its promise does not count."""
        told = iteration._replace(told=self._context.inbox.has_news())
        if iteration.done and not told.done:
            log.event("message.first", "the promise does not count: the agent has not read a message")
        return told

    def _look(self) -> str:
        """Look at the workspace, and outside beside it."""
        if self._settings.on_leak is OnLeak.REPORT:
            self._context.begin_to_look_outside()
        with self._context.interrupted_when(self._must_end):
            return self._context.look()

    def _must_end(self) -> bool:
        """Return whether the loop ends now: then the end of the session saves the work, not a snapshot."""
        deadline = self._deadline
        return self._requests.look() is not None or (deadline is not None and time.monotonic() >= deadline)

    def _matters(self, number: int, iteration: Iteration) -> bool:
        """Return whether it matters what the iteration has changed."""
        if iteration.cut is not None or iteration.refused is not None or iteration.blocked:
            return False
        if self._settings.verify_each:
            return True
        is_last = iteration.last or number == self._settings.max_iterations
        return not is_last and (self.gate is not None or not iteration.promised)

    def _through_gate(self, number: int, iteration: Iteration, now: str) -> tuple[Iteration, str]:
        """Run the gate if the iteration needs it; what the gate writes is no change of the agent's."""
        gate = self.gate
        if gate is None:
            return iteration, now
        if iteration.refused is None and not iteration.failed:
            gate.note_reading()
        if not needs_gate(self._settings, iteration):
            if iteration.changed is not False and iteration.refused is None:
                gate.note_change()
            return (iteration._replace(verified=False) if iteration.promised else iteration), now
        iteration = gate.check(number, iteration)
        self._progress.add(gate.summary)
        iteration = iteration._replace(last=iteration.last or self._requests.look_now() is not None)
        ends = iteration.last or iteration.done
        return iteration, self._look() if now and not ends else ""

    def _ended_early(self, status: int) -> LoopResult | None:
        """Return the result of the loop if it must end before the next iteration, else ``None``."""
        if self._cancel.requested:
            return self._signalled()
        if self._requests.look_now():
            return LoopResult("stop", 0, self._started)
        if self._deadline and time.monotonic() >= self._deadline:
            return LoopResult("max-time", status, self._started)
        return None

    def _wait_for_account(self, state: LoopState, status: int) -> LoopResult | None:
        """Wait until no usage limit holds; return the result if the loop ends first.

        This session or another one may have found the limit.
        """
        announced, number = 0.0, state.iterations + 1
        while True:
            until, wait = self.turns.choose(self._usage_limit_waits, number)
            if not until:
                break
            if self._cancel.requested or self._requests.look():
                return self._ended_early(status)
            if abs(until - announced) > 1:  # by the clock of this boot, it differs a little each time
                wait.announce(until, number)
                if not announced:
                    self._context.notify(
                        "usage-limit",
                        f"the usage limit is reached: iteration {number} waits until {clock(until)}",
                    )
                announced = until
            wait.wait(until, self._deadline)
            self._context.look_outside(f"before iteration {number}")
            if self._deadline and time.monotonic() >= self._deadline:
                log.warning("limit.reached", "max-time reached while the usage limit holds")
                return LoopResult("usage-limit", status or (0 if state.iterations else FAILED), self._started)
        if news := self.turns.take_news():
            self._context.notify("usage-limit", news)
        elif announced:
            self._context.notify("usage-limit", f"the usage limit is over: iteration {number} begins")
        return None

    def _wait_for_room(self, status: int) -> LoopResult | None:
        """Wait while a full disk takes no iteration; return the result if the loop ends first.

        Then the work of the last iterations is kept, before the next one changes it.
        """
        if (full := self._context.without_room()) is None:
            return None
        waits = (
            f"the disk of {full} is full, and the last iterations could not be kept: the loop waits for room"
        )
        log.warning("loop.paused", waits, f"to see what is full: {command('df', '-h', full)}", path=str(full))
        self._progress.say("ralph-wrap: the disk is full: waiting for room")
        try:
            with self._context.waiting_for_room():
                self._context.notify("disk-full", waits)
                while self._context.without_room() is not None:
                    if ended := self._ended_early(status):
                        return ended
                    wakes = time.monotonic() + _LOOK_FOR_ROOM
                    self._supervisor.pause(min(wakes, self._deadline or wakes))
        finally:
            self._progress.say("")
        goes_on = "there is room on the disk again: the loop goes on"
        log.event("loop.went_on", goes_on)
        self._context.notify("disk-full", goes_on)
        self._context.hand_over(self._started, "", True)
        return None

    def _signalled(self) -> LoopResult:
        return LoopResult("signal", 128 + (self._cancel.first or 0), self._started)

    def _pause(self, seconds: float, number: int) -> None:
        """Wait before an iteration; a message for which the iteration must begin ends the wait."""
        begins = time.monotonic() + seconds
        end = min(begins, self._deadline) if self._deadline else begins

        def look() -> float | None:
            if self._context.inbox.is_urgent():  # a person does not want to wait
                return None
            return self._progress.count_down(f"iteration {number} starts", begins)

        try:
            self._supervisor.pause(end, look)
        finally:
            self._progress.say("")

    def _log_end(
        self, number: int, iteration: Iteration, decision: NextIteration | RepeatIteration | EndLoop
    ) -> None:
        message = ""
        if iteration.failed and iteration.cut not in ASKED and not isinstance(decision, RepeatIteration):
            message = f"iteration {number} failed with status {iteration.status}"
            if isinstance(decision, NextIteration):
                message += f", next in {decision.pause:g}s"
        log.event(
            "iteration.ended",
            message,
            iteration=number,
            agent=self.turns.now.name,
            status=iteration.status,
            promised=iteration.promised,
            changed=iteration.changed,
            cut=iteration.cut.value if iteration.cut else None,
            refused=iteration.refused is not None,
            verified=iteration.verified,
        )
