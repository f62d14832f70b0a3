"""Run the agent once: hand the prompt over, start the agent, wait for it, and read its report."""

from __future__ import annotations

import os

from ralph_wrap.config import LoopLimits
from ralph_wrap.loop import budget, prompt
from ralph_wrap.loop.agent_report import AgentReports
from ralph_wrap.loop.iteration_context import IterationContext
from ralph_wrap.loop.limits import IterationLimits
from ralph_wrap.loop.listener import OutputListener
from ralph_wrap.loop.policy import Iteration
from ralph_wrap.loop.start_error import unstarted
from ralph_wrap.loop.supervise import ASKED, AgentSupervisor, Termination
from ralph_wrap.loop.terminal import Terminal
from ralph_wrap.loop.turns import Turns
from ralph_wrap.system import process
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.output_relay import OutputRelay

log = get_logger()

_KILLED = 128  # a higher exit status is a signal's


class IterationRunner:
    """Runs single iterations of one session.

    Arguments:
        turns: the agent that works now.
        limits: of the loop and of an iteration.
        context: directory, environment and callbacks for each iteration.
        relay: moves the output of the agent.
        listener: reads the stdout of the agent.
        supervisor: waits for the agent, and ends it.
        terminal: the terminal that an interactive agent gets.
        deadline: of the whole loop, as :func:`time.monotonic` counts; ``None`` for none.
        promise_grace: seconds that an agent may keep running after its promise.

    """

    def __init__(
        self,
        turns: Turns,
        limits: LoopLimits,
        context: IterationContext,
        relay: OutputRelay,
        listener: OutputListener,
        supervisor: AgentSupervisor,
        terminal: Terminal,
        *,
        deadline: float | None,
        promise_grace: float,
    ) -> None:
        self._turns = turns
        self._limits = limits
        self._context = context
        self._relay = relay
        self._listener = listener
        self._supervisor = supervisor
        self._terminal = terminal
        self._deadline = deadline
        self._promise_grace = promise_grace
        self._reports = AgentReports(limits)
        self._message = turns.now.settings.message

    def run(self, number: int, part: bytes = b"") -> Iteration:
        """Run the agent once; a prompt that cannot be read is a failed iteration.

        Arguments:
            number: of the iteration.
            part: the end of its prompt.

        Raises:
            AgentError: the agent could not be executed.

        """
        try:
            stdin, command = self._prepare(number, part)
        except OSError as error:
            log.warning(
                "prompt.failed",
                f"{self._failed_prompt()}: {error.strerror}",
                "the iteration counts as failed",
            )
            return Iteration(1)
        ending = Termination()
        agent = self._turns.now
        agent.login.begin()
        with self._relay.heard_on_stderr(agent.login.hear):
            with self._terminal.lent():
                try:
                    group = self._spawn(command, stdin, number)
                finally:
                    if stdin is not None:
                        os.close(stdin)
                self._context.spawned()
                log.event(
                    "agent.started",
                    pid=group.pid,
                    agent=agent.name,
                    command=list(agent.settings.command),
                    output=agent.settings.invocation.output,
                    resumed=agent.conversation.session or None,
                )
                self._context.inbox.note_started(number)
                iteration = self._watch(group, ending)
            if iteration.cut is not None or iteration.status > _KILLED:
                self._terminal.restore_screen()
            self._supervisor.clear_up(ending)
        log.event("agent.exited", pid=group.pid, status=iteration.status)
        heard = self._listener.finish()
        self._relay.show(heard.shown)
        reported = self._reports.corrected(iteration, heard, agent)
        agent.count(reported, heard.spent)
        if reported.refused is None and not (reported.failed and agent.conversation.session):
            self._message = ""  # the agent has read it
        agent.conversation.note(reported, heard.session)
        well = reported.refused is None and not reported.failed and reported.cut not in ASKED
        self._context.inbox.note_ended(number, well=well)
        return reported

    def _prepare(self, number: int, part: bytes) -> tuple[int | None, tuple[str, ...]]:
        """Return the standard input and the command of the agent."""
        agent, limits = self._turns.now.settings, self._limits
        content = prompt.content(agent)
        if self._message:
            content = self._message.encode("utf-8", "surrogateescape") + b"\n\n" + (content or b"")
        if part:
            content = (content or b"") + part
        before = prompt.preamble(number, limits, self._context.environ) if agent.preamble else b""
        if told := self._context.inbox.take(prompt.room(agent, before + (content or b""))):
            content = told + (content or b"")
        if content is not None:
            content = before + content
        self._listener.expect_echo(content or b"")
        resuming = agent._replace(command=self._turns.now.conversation.command())
        stdin, command = prompt.hand_over(resuming, content, self._context.directory)
        return stdin, budget.capped(limits, agent.invocation, command, self._reports.spending)

    def _failed_prompt(self) -> str:
        file = self._turns.now.settings.prompt_file
        return f"prompt file {file} cannot be read" if file else "the prompt cannot be passed to the agent"

    def _spawn(self, command: tuple[str, ...], stdin: int | None, number: int) -> process.ProcessGroup:
        streams = process.StandardStreams(stdin, *self._relay.writing_ends)
        if self._terminal.descriptor is not None:
            streams = process.StandardStreams(None, None, None)
        cwd = self._context.cwd
        spec = process.ProcessSpec(
            command,
            cwd=cwd,
            env={**self._turns.now.environ, "RALPH_ITERATION": str(number), "PWD": str(cwd)},
            streams=streams,
            inherited=self._context.inherited,
            terminal=self._terminal.descriptor,
        )
        try:
            return self._context.start(spec)
        except OSError as error:
            context = self._context
            raise unstarted(
                error,
                command[0],
                cwd,
                self._turns.now.settings.project,
                isolated=context.isolated,
                wanted=context.wanted,
            ) from None

    def _watch(self, group: process.ProcessGroup, ending: Termination) -> Iteration:
        terminal = None if self._terminal.descriptor is None else self._terminal
        iteration_limits = IterationLimits(
            self._limits,
            self._listener,
            self._relay,
            self._reports.spending,
            self._deadline,
            self._promise_grace,
        )
        return self._supervisor.supervise(
            group, ending, lambda: iteration_limits.due(with_terminal=terminal is not None), terminal=terminal
        )
