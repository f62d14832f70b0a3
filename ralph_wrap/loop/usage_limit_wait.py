"""Wait for the end of an account's usage limit, and show a countdown on a terminal."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

from ralph_wrap.loop.policy import UsageLimitRefusal
from ralph_wrap.loop.progress import Progress
from ralph_wrap.loop.supervise import AgentSupervisor
from ralph_wrap.loop.usage_limit import AgentAccount
from ralph_wrap.system.log import get_logger

log = get_logger()

_SPREAD = 5.0  # maximum delay in seconds, so that sessions continue one after the other after a limit


class UsageLimitWait:
    """Makes a session wait for the end of a usage limit.

    Arguments:
        account: the account of the agent.
        supervisor: does the waiting.
        progress: shows the countdown.

    """

    def __init__(self, account: AgentAccount, supervisor: AgentSupervisor, progress: Progress) -> None:
        self._account = account
        self._supervisor = supervisor
        self._progress = progress

    @property
    def until(self) -> float:
        """End of the usage limit, in seconds since the epoch; 0 if there is none."""
        return self._account.refused_until(time.time())

    def begin(
        self, refusal: UsageLimitRefusal, seconds: float, agent: str, *, has_others: bool = False
    ) -> None:
        """Record a usage limit of this length, share it with the other sessions, and log it.

        The message comes last. A session that starts after it must know the limit, and not ask again.

        Arguments:
            seconds: 0 if no iteration waits for its end.
            agent: its name.
            has_others: another agent of the session may go on meanwhile.

        """
        now = time.time()
        try:
            if seconds:
                is_stated = refusal.seconds is not None and refusal.seconds > 0
                self._account.refuse(now + seconds, now, is_stated=is_stated)
        except OSError as error:
            log.event("limit.not_shared", reason=str(error))
        at = "" if refusal.until is None else f" until {clock(refusal.until)}"
        whose = f"the usage limit of {agent}" if has_others else "the agent's usage limit"
        log.warning(
            "agent.limited",
            f"{whose} is reached{at}: {refusal.message}",
            until=refusal.until,
            agent=agent,
            fallback=has_others,
        )

    def announce(self, until: float, number: int) -> None:
        """Log that an iteration waits.

        Arguments:
            until: in seconds since the epoch.

        """
        log.event(
            "limit.waiting",
            f"the account's usage limit is reached: iteration {number} waits until {clock(until)}",
            **self._account.hint,
            until=until,
            iteration=number,
        )

    def wait(self, until: float, deadline: float | None) -> None:
        """Wait for a time, a signal, a request to stop, or the removal of the shared file.

        Arguments:
            until: in seconds since the epoch.
            deadline: latest end of the waiting, as :func:`time.monotonic` counts; ``None`` for none.

        """
        seconds = until - time.time()
        spread = min(_SPREAD, seconds) * int.from_bytes(os.urandom(2)) / (1 << 16)
        end = time.monotonic() + seconds + spread

        def look() -> float | None:
            now = time.time()  # this clock runs on while the machine sleeps
            if not (ending := self._account.refused_until(now, spread)):
                return None
            ends = time.monotonic() + ending + spread - now
            return self._progress.count_down("the usage limit ends", ends)

        try:
            self._supervisor.pause(min(end, deadline or end), look)
        finally:
            self._progress.say("")


def clock(moment: float) -> str:
    """Format a time, given in seconds since the epoch, for people."""
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"
