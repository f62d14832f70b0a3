"""Serve the pages on this machine's loopback until a signal comes.

What has been asked for is brought to its end first: a second signal does not wait for it. The signal's own
default action ends the process then, so that whoever started it sees what ended it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn
import uvicorn.lifespan.off
import uvicorn.loops.asyncio
import uvicorn.protocols.http.h11_impl
from starlette.concurrency import run_in_threadpool

from ralph_wrap.errors import ConflictError, RalphError
from ralph_wrap.interfaces.web import templates
from ralph_wrap.interfaces.web.access import Gate, new_token
from ralph_wrap.interfaces.web.app import application
from ralph_wrap.interfaces.web.flash import Notes
from ralph_wrap.interfaces.web.pages import Site
from ralph_wrap.interfaces.web.review_cache import Facts
from ralph_wrap.state import project
from ralph_wrap.worktree.loading import load_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    from ralph_wrap.state.project import Project
    from ralph_wrap.system.log import Log

HOST = "127.0.0.1"
"""The only address that it listens on."""

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_QUEUE = 128  # connections that wait to be accepted


def load() -> None:
    """Load what the first page or button would: before privileges are given up, or we are installed anew."""
    templates.load()
    load_all()
    asyncio.run(run_in_threadpool(lambda: None))


def serve(
    place: Project,
    environ: Mapping[str, str],
    port: int,
    *,
    read_only: bool,
    told: Log,
    announce: Callable[[str], None],
) -> None:
    """Serve the pages of a project until a signal ends the process.

    Arguments:
        port: to listen on; 0 is any that is free.
        read_only: without buttons.
        announce: told the address, once somebody who opens it is heard.

    Raises:
        RalphError: the port cannot be had, or there is no repository.

    """
    gate = Gate(new_token(), read_only=read_only)
    project.repository_of(place)
    ending = _Ending()
    site = Site(place, environ, Facts(place, environ, told), Notes(), read_only, lambda: ending.count > 0)
    with _listening(port) as listening:
        config = uvicorn.Config(
            gate.before(application(site, gate.path, told)),
            http="h11",
            loop="asyncio",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",  # what a browser sends by mistake is nobody's business
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        server = _Server(config, ending)
        site.facts.start()
        server.heed_signals()
        announce(f"http://{HOST}:{listening.getsockname()[1]}/?token={gate.token}")
        server.run([listening])
    if ending.first is not None:
        signal.signal(ending.first, signal.SIG_DFL)
        signal.raise_signal(ending.first)


class _Ending:
    """The signals so far: plain values, since a lock that a handler takes is in the way of the next signal's.

    Attributes:
        first: which one came first.
        count: how many.

    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.count = 0


class _Server(uvicorn.Server):
    """A server that a signal ends, and that leaves it to others to end the process by it.

    Arguments:
        config: see :class:`uvicorn.Config`.
        ending: where signals are noted.

    """

    def __init__(self, config: uvicorn.Config, ending: _Ending) -> None:
        super().__init__(config)
        self._ending = ending

    def heed_signals(self) -> None:
        """End by signals from now on, but for those that are ignored (as under ``nohup``)."""
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: that was done before the address was told."""
        yield

    def _note(self, number: int, _: FrameType | None) -> None:
        if self._ending.first is None:
            self._ending.first = number
        self._ending.count += 1
        self.should_exit = True
        self.force_exit = self._ending.count > 1


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    try:
        listening = socket.create_server((HOST, port), backlog=_QUEUE)
    except OSError as error:
        kind = RalphError if isinstance(error, PermissionError) else ConflictError
        raise kind(
            f"port {port} of {HOST} cannot be had: {os.strerror(error.errno or 0)}",
            "--port 0 takes a free one",
        ) from None
    with listening:
        yield listening
