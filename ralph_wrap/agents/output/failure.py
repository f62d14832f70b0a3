"""Classify an error of an agent: a usage limit, a temporary failure, a missing login, or another failure.

If the agent reports the HTTP status of the service's answer, the status decides; else the message does.
"""

from __future__ import annotations

import re

from ralph_wrap.agents.output import json_access
from ralph_wrap.agents.output.events import AgentFailure, UsageLimitReached

LIMITED = 429
"""The status for too many requests (RFC 6585)."""

UNAUTHORIZED = 401
"""The status for a request without a valid login (RFC 9110)."""

_NO_MONEY, _SERVER_ERROR = 402, 500  # providers send 402 for an account without credit (RFC 9110)
_LIMIT = re.compile(
    r"(usage|rate|session|weekly|hourly|daily|spending) limit|(?<!disk )quota|too many requests|\b429\b"
    r"|spend(ing)? cap|out of (extra )?(credits|usage)|insufficient (credits|funds|balance)"
    r"|credit balance is too low",
    re.IGNORECASE,
)
_PASSING = re.compile(
    r"overload|unavailable|time[d ]*out|connect|network|socket|fetch failed|\b5\d\d\b|E(CONN|NOTFOUND|AI_)"
    r"|high (demand|load)|at capacity|no capacity",
    re.IGNORECASE,
)
# "retry in 14h42m6.85s", "try again in 20ms", "reset after 8h44m7s", "reset in 2 days 3 hours"
_AFTER = re.compile(
    r"\b(?:retry|again|reset) (?:in|after)"
    r"((?: ?\d{1,9}(?:\.\d{1,9})? ?(?:ms|[dhms]|(?:day|hour|minute|second)s?)(?![a-z]))+)",
    re.IGNORECASE | re.ASCII,
)
_PART = re.compile(r"([\d.]+) ?(ms|[dhms])", re.IGNORECASE | re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def classified(
    message: str, status: float | None = None, until: float | None = None, *, passing: bool = False
) -> UsageLimitReached | AgentFailure:
    """Classify an error.

    Arguments:
        message: the message of the agent.
        status: the HTTP status; ``None`` or 0 if it is unknown.
        until: end of the limit in seconds since the epoch, if the error is a usage limit.
        passing: the agent itself reports that a retry may succeed.

    """
    status = status or 0
    if status == UNAUTHORIZED:
        return AgentFailure(message, logged_out=True)
    if status in {_NO_MONEY, LIMITED} or (status < _SERVER_ERROR and _LIMIT.search(message)):
        return UsageLimitReached(message, until)
    found = _PASSING.search(message) is not None
    return AgentFailure(message, passing or status >= _SERVER_ERROR or (not status and found))


def after(message: str, now: float | None) -> float | None:
    """Return the time at which a retry may succeed, by a message, in seconds since the epoch.

    Arguments:
        message: it may contain durations from now; the longest one counts.
        now: in seconds since the epoch; ``None`` if the time of the message is unknown.

    """
    found = [_seconds(words) for words in _AFTER.findall(message)]
    if not found or now is None:
        return None
    return json_access.moment({"until": now + max(found)}, "until")


def _seconds(words: str) -> float:
    return sum(float(count) * _SECONDS[unit.lower()] for count, unit in _PART.findall(words))
