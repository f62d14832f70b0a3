"""The limits of an iteration: its time, its tokens and cost, and the time after its promise."""

from __future__ import annotations

import time

from ralph_wrap.config import LoopLimits
from ralph_wrap.loop.budget import TotalUsage, reached
from ralph_wrap.loop.listener import OutputListener
from ralph_wrap.loop.policy import CutReason
from ralph_wrap.system.output_relay import OutputRelay

PROMISE_GRACE = 60.0
"""Seconds that an agent may keep running after the final answer with its promise."""


class IterationLimits:
    """Computes when one iteration, which begins now, must end.

    Arguments:
        limits: the limits of the user.
        listener: knows the answer, the tokens and the cost of the agent.
        relay: knows the time of the agent's last output.
        spending: tokens and cost of the iterations before.
        deadline: of the whole loop, as :func:`time.monotonic` counts; ``None`` for none.
        promise_grace: see :data:`PROMISE_GRACE`.

    """

    def __init__(
        self,
        limits: LoopLimits,
        listener: OutputListener,
        relay: OutputRelay,
        spending: TotalUsage,
        deadline: float | None,
        promise_grace: float = PROMISE_GRACE,
    ) -> None:
        self._limits = limits
        self._listener = listener
        self._relay = relay
        self._spending = spending
        self._deadline = deadline
        self._promise_grace = promise_grace
        self._promised: float | None = None
        self._begun = relay.last_output = time.monotonic()

    def due(self, *, with_terminal: bool) -> dict[CutReason, float]:
        """Return the time at which each limit ends the iteration, as :func:`time.monotonic` counts.

        Arguments:
            with_terminal: a user talks to the agent on the terminal, so its output does not reach us.

        """
        limits = self._limits
        now = time.monotonic()
        due = {}
        if self._listener.promised:
            self._promised = self._promised or now
            due[CutReason.AFTER_PROMISE] = self._promised + self._promise_grace
        else:
            self._promised = None
        # After the final answer a limit on tokens or cost ends nothing: the work is done.
        if not self._listener.has_answered:
            spending = self._spending.and_(self._listener.current)
            if spent := reached(limits, spending):
                due[spent] = now
        if self._deadline is not None:
            due[CutReason.MAX_TIME] = self._deadline
        if limits.iteration_timeout:
            due[CutReason.ITERATION_TIMEOUT] = self._begun + limits.iteration_timeout
        if limits.idle_timeout and not with_terminal:
            # If the reader of our output blocks, the agent blocks too: it is not idle.
            last = now if self._relay.is_held_up else self._relay.last_output
            due[CutReason.IDLE_TIMEOUT] = last + limits.idle_timeout
        return due
