"""Serve the pages on this machine's loopback until a signal comes.

After the first signal the server completes the open requests; a second signal cuts them short. Then the
signal's default action ends the process, so that its parent process sees the signal.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
import uvicorn.lifespan.off
import uvicorn.loops.asyncio
import uvicorn.protocols.http.h11_impl
from starlette.concurrency import run_in_threadpool

from ralph_wrap.errors import ConflictError, RalphError
from ralph_wrap.interfaces.web import templates
from ralph_wrap.interfaces.web.access import AccessControl, new_token
from ralph_wrap.interfaces.web.app import application
from ralph_wrap.interfaces.web.flash import FlashMessages
from ralph_wrap.interfaces.web.pages import PageContext
from ralph_wrap.interfaces.web.review_cache import ReviewCache
from ralph_wrap.state.project import Project, repository_of
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.process import ENDING

HOST = "127.0.0.1"
"""The only address on which the server listens."""

_QUEUE = 128  # connections that wait to be accepted


def load() -> None:
    """Read the templates and what anyio loads at its first use, before root gives up its privileges."""
    templates.load()
    asyncio.run(run_in_threadpool(lambda: None))


def serve(
    project: Project,
    port: int,
    *,
    read_only: bool,
    announce: Callable[[str], None],
) -> None:
    """Serve the pages of a project until a signal ends the process.

    Arguments:
        port: the port to listen on; 0 takes any free port.
        read_only: show no buttons.
        announce: called with the address once the server accepts connections.

    Raises:
        RalphError: the server cannot listen on the port, or there is no repository.

    """
    gate = AccessControl(new_token(), read_only=read_only)
    repository_of(project)
    cancel = CancelToken()
    context = PageContext(
        project,
        ReviewCache(project),
        FlashMessages(),
        read_only,
        cancel,
    )
    with _listening(port) as listening:
        config = uvicorn.Config(
            gate.before(application(context, gate.path)),
            http="h11",
            loop="asyncio",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",  # a malformed request of a browser is not worth a message
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        server = _Server(config, cancel)
        context.facts.start()
        server.heed_signals()
        announce(f"http://{HOST}:{listening.getsockname()[1]}/?token={gate.token}")
        server.run([listening])
    if cancel.first is not None:
        signal.signal(cancel.first, signal.SIG_DFL)
        signal.raise_signal(cancel.first)


class _Server(uvicorn.Server):
    """A server that stops at a signal; :func:`serve` then ends the process by this signal.

    Arguments:
        config: see :class:`uvicorn.Config`.
        cancel: the record of the signals.

    """

    def __init__(self, config: uvicorn.Config, cancel: CancelToken) -> None:
        super().__init__(config)
        self._cancel = cancel

    def heed_signals(self) -> None:
        """Stop at signals from now on, except for ignored ones (as under ``nohup``)."""
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: :meth:`heed_signals` installed the handlers before the address was printed."""
        yield

    def _note(self, number: int, _: FrameType | None) -> None:
        self._cancel.record(number)
        self.should_exit = True
        self.force_exit = self._cancel.hurried


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    try:
        listening = socket.create_server((HOST, port), backlog=_QUEUE)
    except OSError as error:
        kind = RalphError if isinstance(error, PermissionError) else ConflictError
        raise kind(
            f"cannot listen on port {port} of {HOST}: {os.strerror(error.errno or 0)}",
            "--port 0 takes a free port",
        ) from None
    with listening:
        yield listening
