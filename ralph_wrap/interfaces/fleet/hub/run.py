"""The process of a hub: it forwards, and a child of it serves."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.errors import RalphError
from ralph_wrap.git import git_environment
from ralph_wrap.interfaces.fleet.hub.forward import Forwarder
from ralph_wrap.interfaces.fleet.hub.repository import NAME, open_repository
from ralph_wrap.interfaces.fleet.hub.server import HubServer
from ralph_wrap.interfaces.fleet.order import with_credential
from ralph_wrap.system.process import ENDING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import NoReturn

    from ralph_wrap.system.cancel import CancelToken
    from ralph_wrap.system.log import Log

_LONGEST_WAIT = 300.0  # seconds between two rounds while origin does not answer
_LOOK = 0.1


class HubOrder(NamedTuple):
    """What a hub is to do.

    Attributes:
        directory: on the volume.
        origin: address of the git remote.
        origin_credential: a file of git-credential-store(1) for origin; ``None`` for none.
        credential: a file with one line ``user:password``, for clients of the hub.
        host: to listen at.
        port: to listen at; 0 for a free one.
        interval: seconds between two rounds.

    """

    directory: Path
    origin: str
    origin_credential: Path | None
    credential: Path
    host: str
    port: int
    interval: float


class Hub:
    """A hub.

    Arguments:
        order: what it is to do.
        environ: of git.
        cancel: the signals so far. The first one ends the hub after a last round, the second one at once.

    """

    def __init__(self, order: HubOrder, environ: Mapping[str, str], cancel: CancelToken, log: Log) -> None:
        self._order = order
        self._environ = environ
        self._cancel = cancel
        self._log = log

    def run(self) -> int:
        """Serve and forward until a signal, and return the exit status.

        Raises:
            RalphError: another hub works on the directory, or the server has ended.
            OSError: the port is taken.

        """
        order = self._order
        environ = with_credential(self._environ, order.origin_credential)
        repository = open_repository(order.directory, order.origin, environ)
        forwarder = Forwarder(repository, order.interval, self._cancel, self._log)
        server = HubServer(
            (order.host, order.port), order.directory, order.credential, git_environment(self._environ)
        )
        child = _fork(server)
        host, port = server.server_address[:2]
        server.socket.close()
        self._log.event("hub.started", f"the hub serves http://{host!s}:{port}/{NAME}")
        try:
            self._forward(forwarder, child)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
        is_whole = False
        with contextlib.suppress(RalphError):
            is_whole = forwarder.round()
        if not is_whole:
            self._log.warning(
                "hub.incomplete", f"origin lacks refs that {order.directory} keeps", "start the hub again"
            )
        repository.lock.release()
        return 0

    def _forward(self, forwarder: Forwarder, child: int) -> None:
        wait = self._order.interval
        while not self._cancel.requested:
            begun = time.monotonic()
            try:
                forwarder.round()
                wait = self._order.interval
            except RalphError as error:
                wait = min(2 * wait, max(_LONGEST_WAIT, self._order.interval))
                self._log.warning("hub.waits", error.message, f"the next attempt is in {wait:.0f} s")
            self._pause(begun + wait, child)

    def _pause(self, end: float, child: int) -> None:
        while not self._cancel.requested and time.monotonic() < end:
            _require(child)
            time.sleep(_LOOK)


def _require(child: int) -> None:
    """Check that the server works.

    Raises:
        RalphError: it has ended.

    """
    found = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is not None:
        raise RalphError(f"the server of the hub has ended ({found.si_status})", "start the hub again")


def _fork(server: HubServer) -> int:
    """Start the server as a child process, and return its pid."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _serve(server, parent)
    return pid


def _serve(server: HubServer, parent: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        for number in ENDING:  # Ctrl-C is for the parent, which ends the server
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGTSTP, signal.SIGCONT):
            signal.signal(number, signal.SIG_DFL)
        server.timeout = 1.0
        while os.getppid() == parent:
            server.handle_request()
    finally:
        os._exit(1)
