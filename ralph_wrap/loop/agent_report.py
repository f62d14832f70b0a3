"""Correct the result of an iteration by what the agent reports about it, and add up what it spends."""

from __future__ import annotations

import time

from ralph_wrap.agents.output import AgentFailure, Usage, UsageLimitReached
from ralph_wrap.agents.output.transcript import shortened
from ralph_wrap.config import LoopLimits
from ralph_wrap.loop import budget
from ralph_wrap.loop.listener import IterationOutput
from ralph_wrap.loop.policy import CUT_SHORT, CutReason, Iteration, UsageLimitRefusal
from ralph_wrap.loop.supervise import ASKED
from ralph_wrap.loop.turns import LoopAgent
from ralph_wrap.system.log import Commands, get_logger

log = get_logger()

FAILED = 1
"""Status of an iteration whose agent reports a failure, but exits with 0."""


class AgentReports:
    """The reports of the agent of one session.

    Arguments:
        limits: the limits on tokens and cost, and the promise.

    Attributes:
        spending: tokens and cost of all iterations so far.

    """

    def __init__(self, limits: LoopLimits) -> None:
        self.spending = budget.TotalUsage()
        self._limits = limits
        self._is_blind = False
        self._has_warned_of_promise = False

    def corrected(self, iteration: Iteration, output: IterationOutput, agent: LoopAgent) -> Iteration:
        """Return the iteration, corrected by the agent's own report about it."""
        spent = output.spent
        self.spending = self.spending.and_(spent)
        if spent is not None:
            log.event(
                "agent.reported",
                agent=agent.name,
                tokens=spent.tokens,
                cost_usd=spent.cost,
                turns=spent.turns,
                session=output.session or None,
            )
        # A status after a limit is of our own making, and says nothing about the agent.
        has_failed = iteration.status != 0 and iteration.cut is None
        counts = iteration.cut not in ASKED and not has_failed
        answer = output.answer
        iteration = iteration._replace(
            promised=answer.promise.kept and counts,
            blocked=answer.blocked and counts,
            question=answer.question if counts else "",
            reached=budget.reached(self._limits, self.spending),
        )
        if answer.promise.kept and has_failed:
            log.warning(
                "promise.ignored",
                f"the agent kept its promise and failed with status {iteration.status}:"
                " that does not end the loop",
                "an agent that has done all must end with status 0",
            )
        if answer.promise.seen and not answer.promise.kept:
            self._warn_of_promise()
        if iteration.cut is None and (said := agent.login.complaint(iteration.status, output.failure)):
            return _logged_out(iteration, agent, said)
        if output.failure is None:
            # An agent that was asked to end may not have come to its report.
            if not self._is_blind and iteration.status == 0 and iteration.cut is None:
                self._is_blind = self._warn_of_blindness(spent)
            return iteration
        return self._failed(iteration, output.failure)

    def _failed(self, iteration: Iteration, failure: UsageLimitReached | AgentFailure) -> Iteration:
        iteration = iteration._replace(status=iteration.status or FAILED)
        words = shortened(failure.message)
        if isinstance(failure, UsageLimitReached):
            until = failure.until
            seconds = None if until is None else until - time.time()
            return iteration._replace(refused=UsageLimitRefusal(seconds, until, words))
        if iteration.cut in ASKED:
            # Claude Code calls it an error that it was interrupted, and the user knows that.
            log.event("agent.interrupted", said=words)
            return iteration
        log.warning("agent.failed", f"the agent failed: {words}", passing=failure.passing)
        if failure.capped and iteration.cut is None and self._limits.max_cost:
            return iteration._replace(status=CUT_SHORT, cut=CutReason.MAX_COST)
        return iteration._replace(passing=failure.passing)

    def _warn_of_blindness(self, spent: Usage | None) -> bool:
        """Warn of limits that have no effect."""
        if options := budget.without_effect(self._limits, spent):
            log.warning(
                "limit.ignored",
                f"no effect: {options}; the agent does not report it",
                "--max-time, --max-iterations",
            )
        return bool(options)

    def _warn_of_promise(self) -> None:
        """Warn once that the answer has the promise at a position that does not count."""
        if not self._has_warned_of_promise:
            until = self._limits.until.strip()
            log.warning(
                "promise.ignored",
                f"the answer has {until}, but not on a line of its own, or only where it repeats the prompt:"
                " that does not end the loop",
                f"write in the prompt: When all is done, answer {until} on a line of its own.",
            )
        self._has_warned_of_promise = True


def _logged_out(iteration: Iteration, agent: LoopAgent, said: str) -> Iteration:
    command = agent.login.command
    log.warning(
        "agent.not_logged_in",
        f"{agent.name} is not logged in: {said}",
        Commands.of(
            *([f"to log it in: {command}"] if command else []), "to see where it looks: ralph-wrap doctor"
        ),
        agent=agent.name,
        said=said,
    )
    return iteration._replace(status=iteration.status or FAILED, logged_out=said)
