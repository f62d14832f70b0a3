"""Wait before an iteration until the session may spend enough money for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ralph_wrap.loop.policy import CUT_SHORT, CutReason, LoopResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph_wrap.config.allowance import Allowance
    from ralph_wrap.loop.supervise import AgentSupervisor
    from ralph_wrap.system.log import Log

_LOOK = 0.2  # seconds between two looks at the money


class AllowanceWait:
    """Makes a session wait for the process that leases its money.

    Arguments:
        allowance: the money of the session; ``None`` if it shares no limit.
        supervisor: does the waiting.

    """

    def __init__(self, allowance: Allowance | None, supervisor: AgentSupervisor, log: Log) -> None:
        self._allowance = allowance
        self._supervisor = supervisor
        self._log = log

    def wait(self, ended_early: Callable[[int], LoopResult | None], started: int) -> LoopResult | None:
        """Wait until there is enough for an iteration; return the result of the loop if it must end.

        Arguments:
            ended_early: returns the result if a signal, a request or a time limit ends the loop.
            started: number of iterations that were started.

        """
        allowance = self._allowance
        if allowance is None or allowance.left >= allowance.wanted:
            return None
        self._log.event("limit.leasing", iteration=started + 1)
        while allowance.left < allowance.wanted:
            if allowance.is_closed:
                if allowance.left > 0:
                    return None
                self._log.warning(
                    "limit.reached", "fleet-max-cost reached: the sessions of the run have spent it"
                )
                return LoopResult(CutReason.FLEET_MAX_COST.value, CUT_SHORT, started)
            if ended := ended_early(CUT_SHORT):
                return ended
            self._supervisor.pause(time.monotonic() + _LOOK)
        return None
