"""Run the agent again and again, as the policy decides."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ralph_wrap.agents.output import UsageLimitReached
from ralph_wrap.agents.output.transcript import shortened
from ralph_wrap.loop import budget, prompt
from ralph_wrap.loop.budget import TotalUsage
from ralph_wrap.loop.limits import PROMISE_GRACE, IterationLimits
from ralph_wrap.loop.policy import (
    CUT_SHORT,
    CutReason,
    EndLoop,
    Iteration,
    LoopResult,
    LoopState,
    NextIteration,
    RepeatIteration,
    UsageLimitRefusal,
    after,
)
from ralph_wrap.loop.progress import Progress
from ralph_wrap.loop.resume import AgentResume
from ralph_wrap.loop.setup import set_up
from ralph_wrap.loop.start_error import unstarted
from ralph_wrap.loop.supervise import ASKED, AgentSupervisor, Termination
from ralph_wrap.loop.terminal import find_terminal
from ralph_wrap.loop.usage_limit import AgentAccount
from ralph_wrap.loop.usage_limit_wait import UsageLimitWait, clock
from ralph_wrap.state.stop_request import StopRequests
from ralph_wrap.system import process

if TYPE_CHECKING:
    from ralph_wrap.agents.output import Usage
    from ralph_wrap.config import Settings
    from ralph_wrap.loop.iteration_context import IterationContext
    from ralph_wrap.loop.listener import IterationOutput, OutputListener
    from ralph_wrap.system.log import Log
    from ralph_wrap.system.output_relay import OutputRelay
    from ralph_wrap.system.signals import SignalHandlers

_FAILED = 1  # status of an iteration whose agent reports a failure, but exits with 0


class Driver:
    """Runs iterations until the policy, a signal, a request to stop or a time limit ends them.

    Arguments:
        settings: the limits, the command, the prompt.
        context: directory, environment and callbacks for each iteration.
        relay: moves the output of the agent.
        listener: reads the stdout of the agent.
        signals: a context that was entered; its signals end the loop.
        promise_grace: seconds that an agent may keep running after its promise.

    """

    def __init__(
        self,
        settings: Settings,
        context: IterationContext,
        relay: OutputRelay,
        listener: OutputListener,
        signals: SignalHandlers,
        log: Log,
        *,
        promise_grace: float = PROMISE_GRACE,
    ) -> None:
        self._settings = settings
        self._context = context
        self._environ = {**context.environ, **dict(settings.invocation.env)}
        self._relay = relay
        self._listener = listener
        self._cancel = signals.cancel
        self._requests = StopRequests(context.directory, log)
        self._terminal = find_terminal(settings)
        shared = relay.share(log.last_line)
        self._progress = Progress(
            settings, context, listener, log, shown=shared and self._terminal.descriptor is None
        )
        self._supervisor = AgentSupervisor(
            context, settings.grace, relay, signals, self._requests, self._progress, log
        )
        self._log = log
        self._deadline = time.monotonic() + settings.max_time if settings.max_time else None
        self._promise_grace = promise_grace
        self._spending = TotalUsage()
        self._resumption = AgentResume(settings, log)
        self._is_blind = False
        self._started = 0
        # .ralph/run/sessions/<session> belongs to the session, .ralph/run to the project
        account = AgentAccount(context.directory.parents[1] / "limits", settings.agent, self._environ)
        self._usage_limit_wait = UsageLimitWait(account, self._supervisor, self._progress, log)

    def run(self) -> LoopResult:
        """Run the setup command, then the loop to its end.

        Raises:
            AgentError: the agent could not be executed.
            SetupError: the setup command failed.

        """
        with self._requests, self._progress:
            status, pristine = 0, self._context.pristine
            if self._settings.setup and not self._called_off(0):
                try:
                    if set_up(
                        self._settings,
                        self._context,
                        self._relay,
                        self._supervisor,
                        self._deadline,
                        self._log,
                    ):
                        status = CUT_SHORT
                finally:
                    self._context.look_outside("during setup")
                pristine = ""
            return self._run(pristine, status)

    def _run(self, pristine: str, status: int) -> LoopResult:
        settings = self._settings
        state = LoopState()
        before = ""
        if settings.max_stalls and not self._called_off(status):
            before = pristine or self._context.fingerprint()
        while True:
            if ended := self._held_back(state, status) or self._called_off(status):
                return ended
            number = state.iterations + 1
            self._started = number
            iteration = self._iterate(number)
            iteration = iteration._replace(
                last=self._requests.look() is not None,
                leaked=self._context.look_outside(f"during iteration {number}"),
            )
            status = iteration.status
            now = ""
            if (
                before
                and not iteration.last
                and number != settings.max_iterations
                and not iteration.promised
                and iteration.cut is None
                and iteration.refused is None
            ):
                now = self._context.fingerprint()
                iteration = iteration._replace(changed=now != before if now else None)
            state, decision = after(settings, state, iteration)
            self._tell_ended(number, iteration, decision)
            if iteration.cut is CutReason.SIGNAL:
                return self._signalled()
            if settings.commit_each or not isinstance(decision, EndLoop):
                now = self._context.hand_over(number, now, not isinstance(decision, RepeatIteration)) or now
            if isinstance(decision, EndLoop):
                return LoopResult(decision.ended_by, decision.status, number)
            if isinstance(decision, RepeatIteration):
                self._usage_limit_wait.begin(decision.hold)
                continue
            before = now or before
            if decision.pause:
                self._pause(decision.pause)
                self._context.look_outside(f"after iteration {number}")

    def _called_off(self, status: int) -> LoopResult | None:
        """Return the result of the loop if it must end before the next iteration, else ``None``."""
        if self._cancel.requested:
            return self._signalled()
        if self._requests.look():
            return LoopResult("stop", 0, self._started)
        if self._deadline and time.monotonic() >= self._deadline:
            return LoopResult("max-time", status, self._started)
        return None

    def _held_back(self, state: LoopState, status: int) -> LoopResult | None:
        """Wait until the usage limit of the account ends; return the result if the loop ends first.

        This session or another one may have found the limit.
        """
        told = 0.0
        number = state.iterations + 1
        while until := self._usage_limit_wait.until:
            if self._cancel.requested or self._requests.look():
                return self._called_off(status)
            if until != told:
                told = until
                self._usage_limit_wait.tell(until, number)
            self._usage_limit_wait.wait(until, self._deadline)
            self._context.look_outside(f"before iteration {number}")
            if self._deadline and time.monotonic() >= self._deadline:
                self._log.warning("limit.reached", "max-time reached while the usage limit holds")
                return LoopResult(
                    "usage-limit", status or (0 if state.iterations else _FAILED), self._started
                )
        return None

    def _signalled(self) -> LoopResult:
        return LoopResult("signal", 128 + (self._cancel.first or 0), self._started)

    def _iterate(self, number: int) -> Iteration:
        self._context.begin(number)
        self._log.event("iteration.started", iteration=number)
        self._progress.begin(number)
        try:
            content = prompt.content(self._settings)
            if content is not None and self._settings.preamble:
                content = (
                    prompt.preamble(number, self._settings.max_iterations, self._context.environ) + content
                )
            resuming = self._settings._replace(command=self._resumption.command())
            stdin, command = prompt.hand_over(resuming, content, self._context.directory)
            command = budget.capped(self._settings, command, self._spending)
        except OSError as error:
            file = self._settings.prompt_file
            what = (
                f"prompt file {file} cannot be read" if file else "the prompt cannot be passed to the agent"
            )
            self._log.warning(
                "prompt.failed",
                f"{what}: {error.strerror}",
                "the iteration counts as failed",
            )
            return Iteration(1)
        ending = Termination()
        with self._terminal.lent():
            try:
                group = self._spawn(command, stdin, number)
            finally:
                if stdin is not None:
                    os.close(stdin)
            self._context.spawned()
            self._log.event(
                "agent.started",
                pid=group.pid,
                command=list(self._settings.command),
                output=self._settings.invocation.output,
                resumed=self._resumption.session or None,
            )
            iteration = self._watch(group, ending)
        self._supervisor.clear_up(ending)
        self._log.event("agent.exited", pid=group.pid, status=iteration.status)
        heard = self._listener.finish()
        self._relay.show(heard.shown)
        judged = self._judged(iteration, heard)
        self._resumption.note(judged, heard.session)
        return judged

    def _judged(self, iteration: Iteration, heard: IterationOutput) -> Iteration:
        """Return the iteration, corrected by the agent's own report about it."""
        spent = heard.spent
        self._spending = self._spending.and_(spent)
        if spent is not None:
            self._log.event(
                "agent.reported",
                tokens=spent.tokens,
                cost_usd=spent.cost,
                turns=spent.turns,
                session=heard.session or None,
            )
        iteration = iteration._replace(
            promised=heard.promised and iteration.cut not in ASKED,
            reached=budget.reached(self._settings, self._spending),
        )
        if heard.failure is None:
            if not self._is_blind and iteration.status == 0:
                self._is_blind = self._warn_of_blindness(spent)
            return iteration
        iteration = iteration._replace(status=iteration.status or _FAILED)
        words = shortened(heard.failure.message)
        if isinstance(heard.failure, UsageLimitReached):
            until = heard.failure.until
            at = "" if until is None else f" until {clock(until)}"
            self._log.warning(
                "agent.limited", f"the agent's usage limit is reached{at}: {words}", until=until
            )
            return iteration._replace(
                refused=UsageLimitRefusal(None if until is None else until - time.time())
            )
        self._log.warning("agent.failed", f"the agent failed: {words}", passing=heard.failure.passing)
        if heard.failure.capped and self._settings.max_cost and iteration.cut is None:
            return iteration._replace(
                status=CUT_SHORT, cut=CutReason.MAX_COST
            )  # its cost option, which we set
        return iteration._replace(passing=heard.failure.passing)

    def _warn_of_blindness(self, spent: Usage | None) -> bool:
        """Warn of limits that have no effect."""
        if options := budget.without_effect(self._settings, spent):
            self._log.warning(
                "limit.ignored",
                f"no effect: {options}; the agent does not report it",
                "--max-time, --max-iterations",
            )
        return bool(options)

    def _spawn(self, command: tuple[str, ...], stdin: int | None, number: int) -> process.ProcessGroup:
        streams = process.StandardStreams(stdin, *self._relay.writing_ends)
        if self._terminal.descriptor is not None:
            streams = process.StandardStreams(None, None, None)
        cwd = self._context.cwd
        try:
            return process.ProcessGroup(
                command,
                cwd=cwd,
                env={**self._environ, "RALPH_ITERATION": str(number), "PWD": str(cwd)},
                streams=streams,
                inherited=self._context.inherited,
                terminal=self._terminal.descriptor,
            )
        except OSError as error:
            isolated = self._context.isolated
            raise unstarted(error, command[0], cwd, self._settings.project, isolated=isolated) from None

    def _watch(self, group: process.ProcessGroup, ending: Termination) -> Iteration:
        terminal = None if self._terminal.descriptor is None else self._terminal
        iteration_limits = IterationLimits(
            self._settings,
            self._listener,
            self._relay,
            self._spending,
            self._deadline,
            self._promise_grace,
        )
        return self._supervisor.supervise(
            group, ending, lambda: iteration_limits.due(with_terminal=terminal is not None), terminal=terminal
        )

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        if self._deadline:
            end = min(end, self._deadline)
        self._supervisor.pause(end)

    def _tell_ended(
        self, number: int, iteration: Iteration, decision: NextIteration | RepeatIteration | EndLoop
    ) -> None:
        message = ""
        if iteration.failed and iteration.cut not in ASKED and not isinstance(decision, RepeatIteration):
            message = f"iteration {number} failed with status {iteration.status}"
            if isinstance(decision, NextIteration):
                message += f", next in {decision.pause:g}s"
        self._log.event(
            "iteration.ended",
            message,
            iteration=number,
            status=iteration.status,
            promised=iteration.promised,
            changed=iteration.changed,
            cut=iteration.cut.value if iteration.cut else None,
            refused=iteration.refused is not None,
        )
