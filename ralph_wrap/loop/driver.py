"""Run the agent again and again, and obey the policy."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ralph_wrap import process
from ralph_wrap.agents.read import Limited
from ralph_wrap.agents.read.readable import shortened
from ralph_wrap.loop import prompt
from ralph_wrap.loop.overseer import ASKED, Ending, Overseer
from ralph_wrap.loop.policy import CUT_SHORT, Cut, End, GoOn, Iteration, LoopResult, State, after
from ralph_wrap.loop.terminal import find_terminal
from ralph_wrap.loop.unstarted import unstarted
from ralph_wrap.request import Requests

if TYPE_CHECKING:
    from ralph_wrap.config import Settings
    from ralph_wrap.log import Log
    from ralph_wrap.loop.listen import Heard, Listener
    from ralph_wrap.loop.stage import Stage
    from ralph_wrap.relay import Relay
    from ralph_wrap.signals import Signals

_FAILED = 1  # exit status of an iteration whose agent says that it failed, and ends with 0


class Driver:
    """Runs iterations until the policy, a signal, a request to stop or a time limit ends them.

    Arguments:
        settings: the limits, the command, the prompt.
        stage: what the agent is run with.
        relay: where its output goes.
        listener: hears its stdout.
        signals: entered; their requests end the loop.
        log: told of everything.

    """

    def __init__(
        self,
        settings: Settings,
        stage: Stage,
        relay: Relay,
        listener: Listener,
        signals: Signals,
        log: Log,
    ) -> None:
        self._settings = settings
        self._stage = stage
        self._relay = relay
        self._listener = listener
        self._stop = signals.stop
        self._requests = Requests(stage.directory, log)
        self._overseer = Overseer(stage, settings.grace, relay, signals, self._requests, log)
        self._log = log
        self._deadline = time.monotonic() + settings.max_time if settings.max_time else None
        self._terminal = find_terminal(settings)
        log.share_terminal(stage.directory / "output.log")

    def run(self) -> LoopResult:
        """Run what makes the workspace ready, then the loop to its end.

        Raises:
            AgentError: the agent could not be executed.
            SetupError: the workspace could not be made ready.

        """
        with self._requests:
            status, pristine = 0, self._stage.pristine
            if self._settings.setup and not self._called_off(State(), 0):
                from ralph_wrap.loop.setup import set_up  # noqa: PLC0415 -- few projects have one

                try:
                    if set_up(
                        self._settings, self._stage, self._relay, self._overseer, self._deadline, self._log
                    ):
                        status = CUT_SHORT
                finally:
                    self._stage.look_outside("during setup")
                pristine = ""
            return self._run(pristine, status)

    def _run(self, pristine: str, status: int) -> LoopResult:
        settings = self._settings
        state = State()
        before = ""
        if settings.max_stalls and not self._called_off(state, status):
            before = pristine or self._stage.fingerprint()
        while True:
            if called_off := self._called_off(state, status):
                return called_off
            number = state.iterations + 1
            iteration = self._iterate(number)
            iteration = iteration._replace(
                last=self._requests.look() is not None,
                leaked=self._stage.look_outside(f"during iteration {number}"),
            )
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
            if decision.pause:
                self._pause(decision.pause)
                self._stage.look_outside(f"after iteration {number}")

    def _called_off(self, state: State, status: int) -> LoopResult | None:
        """Return how the loop ends before a further iteration, if it does."""
        if self._stop.count:
            return self._signalled(state.iterations)
        if self._requests.look():
            return LoopResult("stop", 0, state.iterations)
        if self._deadline and time.monotonic() >= self._deadline:
            return LoopResult("max-time", status, state.iterations)
        return None

    def _signalled(self, iterations: int) -> LoopResult:
        return LoopResult("signal", 128 + (self._stop.first or 0), iterations)

    def _iterate(self, number: int) -> Iteration:
        self._stage.begin(number)
        self._log.event("iteration.started", iteration=number)
        try:
            stdin, command = prompt.hand_over(
                self._settings, prompt.content(self._settings), self._stage.directory
            )
        except OSError as error:
            file = self._settings.prompt_file
            what = f"prompt file {file} cannot be read" if file else "the prompt cannot be handed over"
            self._log.warning(
                "prompt.failed",
                f"{what}: {error.strerror}",
                "the iteration counts as failed",
            )
            return Iteration(1)
        ending = Ending()
        with self._terminal.lent():
            try:
                group = self._spawn(command, stdin, number)
            finally:
                if stdin is not None:
                    os.close(stdin)
            self._stage.spawned()
            self._log.event("agent.started", pid=group.pid, command=list(self._settings.command))
            iteration = self._watch(group, ending)
        self._overseer.clear_up(ending)
        self._log.event("agent.exited", pid=group.pid, status=iteration.status)
        heard = self._listener.finish()
        self._relay.show(heard.shown)
        return self._judged(iteration, heard)

    def _judged(self, iteration: Iteration, heard: Heard) -> Iteration:
        """Return how an iteration ended by what the agent itself says of it."""
        if (spent := heard.spent) is not None:
            self._log.event(
                "agent.reported",
                tokens=spent.tokens,
                cost_usd=spent.cost,
                turns=spent.turns,
                session=heard.session or None,
            )
        promised = heard.promised and iteration.cut not in ASKED
        if heard.failure is None:
            return iteration._replace(promised=promised)
        words = shortened(heard.failure.message)
        if isinstance(heard.failure, Limited):
            until = heard.failure.until
            at = "" if until is None else f" until {datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M} UTC"
            self._log.warning(
                "agent.limited", f"the agent's usage limit is reached{at}: {words}", until=until
            )
        else:
            self._log.warning("agent.failed", f"the agent has failed: {words}", passing=heard.failure.passing)
        return iteration._replace(promised=promised, status=iteration.status or _FAILED)

    def _spawn(self, command: tuple[str, ...], stdin: int | None, number: int) -> process.Group:
        streams = process.Streams(stdin, *self._relay.writing_ends)
        if self._terminal.descriptor is not None:
            streams = process.Streams(None, None, None)
        cwd = self._stage.cwd
        given = {**self._stage.environ, **dict(self._settings.manner.env)}
        try:
            return process.Group(
                command,
                cwd=cwd,
                env={**given, "RALPH_ITERATION": str(number), "PWD": str(cwd)},
                streams=streams,
                inherited=self._stage.inherited,
                terminal=self._terminal.descriptor,
            )
        except OSError as error:
            isolated = self._stage.isolated
            raise unstarted(error, command[0], cwd, self._settings.project, isolated=isolated) from None

    def _watch(self, group: process.Group, ending: Ending) -> Iteration:
        begun = self._relay.last_output = time.monotonic()
        return self._overseer.oversee(
            group,
            ending,
            lambda: self._limits(begun),
            terminal=None if self._terminal.descriptor is None else self._terminal,
        )

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

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        if self._deadline:
            end = min(end, self._deadline)
        self._overseer.pause(end)

    def _tell_ended(self, number: int, iteration: Iteration, decision: GoOn | End) -> None:
        message = ""
        if iteration.failed and iteration.cut not in ASKED:
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
