"""The gate of the tests: an agent with ``AGENT_HOLD`` waits until it is open."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.kubernetes.control_plane import ADDRESS

if TYPE_CHECKING:
    from tests.kubernetes.machine import Daemon, Machine

_FIRST_PORT = 9001
_LISTEN = f"""
import socket, sys
with socket.create_server(("{ADDRESS}", int(sys.argv[1])), backlog=128) as server:
    while True:
        server.accept()[0].close()
"""


def address_of_gate(number: int) -> str:
    """Return where an agent asks the gate with this number."""
    return f"{ADDRESS}/{_FIRST_PORT + number}"


class Gate:
    """A gate on a machine, which is closed first.

    Arguments:
        number: of the gate, if there are some at the same time.

    """

    def __init__(self, machine: Machine, number: int = 0) -> None:
        self._machine = machine
        self._port = str(_FIRST_PORT + number)
        self._daemon: Daemon | None = None

    def open(self) -> None:
        """Open it."""
        self._daemon = self._machine.start(f"gate-{self._port}", sys.executable, "-c", _LISTEN, self._port)

    def close(self) -> None:
        """Close it, if it is open."""
        if self._daemon is not None:
            self._daemon.kill()
