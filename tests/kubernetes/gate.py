"""The gate of the tests: an agent with ``AGENT_HOLD`` waits until it is open."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.kubernetes.control_plane import ADDRESS

if TYPE_CHECKING:
    from tests.kubernetes.machine import Daemon, Machine

PORT = 9001
_LISTEN = f"""
import socket
with socket.create_server(("{ADDRESS}", {PORT}), backlog=128) as server:
    while True:
        server.accept()[0].close()
"""


class Gate:
    """A gate on a machine, which is closed first."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._daemon: Daemon | None = None

    def open(self) -> None:
        """Open it."""
        self._daemon = self._machine.start("gate", sys.executable, "-c", _LISTEN)

    def close(self) -> None:
        """Close it, if it is open."""
        if self._daemon is not None:
            self._daemon.kill()
