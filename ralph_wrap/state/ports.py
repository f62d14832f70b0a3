"""Ports for an agent's servers, by the id of its session."""

from __future__ import annotations

from collections.abc import Collection

_FIRST_PORT = 20_000
_PORTS = 10  # number of ports of a session
_RANGES = 4_000


def port_for(agent_id: str, taken: Collection[int]) -> int:
    """Return the first of ten ports for the servers of an agent: those of its id, or the next free ones.

    The function does not check whether a process has bound a port: this may change until the agent starts.

    Arguments:
        agent_id: id of the session.
        taken: the first ports of the other sessions that are not finished.

    """
    own = int(agent_id, 16) % _RANGES
    ports = (_FIRST_PORT + _PORTS * ((own + step) % _RANGES) for step in range(_RANGES))
    return next((port for port in ports if port not in taken), _FIRST_PORT + _PORTS * own)
