"""Ports for an agent's servers, by the id of its session."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_ID = re.compile(r"[0-9a-f]{4}")
_FIRST_PORT = 20_000
_PORTS = 10  # that a session may count on
_RANGES = 4_000
_CHOICES = (1, 40_503, 30_011)  # such that no id has all of its ranges in common with another one


def port_for(agent_id: str, live: Collection[str]) -> int:
    """Return the first of ten ports that no other session's agent is told to use.

    Each id has three ranges, and its session takes the first that none of the others has among its own.
    So nobody needs to know which one they took: of two sessions, one has seen the other. With a hundred
    others, fewer than one of two thousand finds none and shares its first. Whether somebody else has bound
    a port is not looked at: it may be otherwise when the agent wants it.

    Arguments:
        agent_id: whose agent it is.
        live: ids of the sessions that are not finished; its own, and what is no id, are passed over.

    """
    others = {other for other in live if other != agent_id and _ID.fullmatch(other)}
    taken = {number for other in others for number in _ranges(other)}
    mine = _ranges(agent_id)
    return _FIRST_PORT + _PORTS * next((number for number in mine if number not in taken), mine[0])


def _ranges(agent_id: str) -> tuple[int, ...]:
    # 65,537 is prime, so that each factor leads from every id to another number.
    return tuple((int(agent_id, 16) + 1) * factor % 65_537 % _RANGES for factor in _CHOICES)
