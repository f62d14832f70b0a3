"""Ports for an agent's servers, by the id of its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralph_wrap.state.ids import is_agent_id

if TYPE_CHECKING:
    from collections.abc import Collection

_FIRST_PORT = 20_000
_PORTS = 10  # number of ports of a session
_RANGES = 4_000
_CHOICES = (1, 40_503, 30_011)  # with these factors no two ids have all their ranges in common


def port_for(agent_id: str, live: Collection[str]) -> int:
    """Return the first of ten ports for the servers of an agent; other sessions get other ports.

    Each id has three ranges. A session takes its first range that is not among the three of another session.
    It need not know which range the other session took: of two sessions, the later one sees the earlier one.
    With a hundred other sessions, fewer than one in two thousand finds no free range; it shares its first.
    The function does not check whether a process has bound a port: this may change until the agent starts.

    Arguments:
        agent_id: id of the session.
        live: ids of the sessions that are not finished; its own id and invalid ids are ignored.

    """
    others = {live_id for live_id in live if live_id != agent_id and is_agent_id(live_id)}
    taken = {number for live_id in others for number in _ranges(live_id)}
    own = _ranges(agent_id)
    return _FIRST_PORT + _PORTS * next((number for number in own if number not in taken), own[0])


def _ranges(agent_id: str) -> tuple[int, ...]:
    # 65,537 is prime, so each factor maps different ids to different numbers.
    return tuple((int(agent_id, 16) + 1) * factor % 65_537 % _RANGES for factor in _CHOICES)
