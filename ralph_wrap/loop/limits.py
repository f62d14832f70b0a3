"""The limits of an iteration: its time, its tokens and cost, and the time after its promise."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ralph_wrap.loop.budget import TotalUsage, reached
from ralph_wrap.loop.policy import CutReason

if TYPE_CHECKING:
    from ralph_wrap.config import Settings
    from ralph_wrap.loop.listener import OutputListener
    from ralph_wrap.system.output_relay import OutputRelay

PROMISE_GRACE = 60.0
"""Seconds that an agent may keep running after the final answer with its promise."""


class IterationLimits:
    """Computes when one iteration, which begins now, must end.

    Arguments:
        settings: the limits.
        listener: knows the answer, the tokens and the cost of the agent.
        relay: knows the time of the agent's last output.
        spending: tokens and cost of the iterations before.
        deadline: of the whole loop, as :func:`time.monotonic` counts; ``None`` for none.
        promise_grace: see :data:`PROMISE_GRACE`.

    """

    def __init__(
        self,
        settings: Settings,
        listener: OutputListener,
        relay: OutputRelay,
        spending: TotalUsage,
        deadline: float | None,
        promise_grace: float = PROMISE_GRACE,
    ) -> None:
        self._settings = settings
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
        settings = self._settings
        now = time.monotonic()
        limits = {}
        if self._listener.promised:
            self._promised = self._promised or now
            limits[CutReason.AFTER_PROMISE] = self._promised + self._promise_grace
        else:
            self._promised = None
        # After the final answer a limit on tokens or cost ends nothing: the work is done.
        if not self._listener.has_answered and (
            spent := reached(settings, self._spending.and_(self._listener.current))
        ):
            limits[spent] = now
        if self._deadline is not None:
            limits[CutReason.MAX_TIME] = self._deadline
        if settings.iteration_timeout:
            limits[CutReason.ITERATION_TIMEOUT] = self._begun + settings.iteration_timeout
        if settings.idle_timeout and not with_terminal:
            # If the reader of our output blocks, the agent blocks too: it is not idle.
            last = now if self._relay.is_held_up else self._relay.last_output
            limits[CutReason.IDLE_TIMEOUT] = last + settings.idle_timeout
        return limits
