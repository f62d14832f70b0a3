"""A model that plays a script, on loopback, for real agents to talk to.

A script is a list of iterations, each a list of turns. Which iteration it is stands in a file that the
agent's launcher writes (see ``programs.py``).
Which turn it is follows from the request: the number of tools that have answered. So it
does not matter how often an agent repeats a request. A question without tools (a title for the conversation,
say) gets a short answer that belongs to no turn.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from tests.agents.dialects import DIALECTS
from tests.agents.script import INPUT_TOKENS, Dropping, Failing, Hanging, Limited, Refusing, Say, Turn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.agents.dialects import Dialect


class Model:
    """The server; entering it starts it.

    Arguments:
        script: turns of each iteration; the last one is repeated; a usage limit whose time has come is
            left out.
        iteration: a file that holds the number of the iteration, if it is there.
        late: connections are refused until :meth:`listen` is called.

    Attributes:
        requests: path and body of each request that counted as a turn.

    """

    def __init__(self, script: Sequence[Sequence[Turn]], iteration: Path, *, late: bool = False) -> None:
        self._script = script
        self._iteration = iteration
        self._over = threading.Event()
        self._asked = threading.Condition()
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self._server = _Server(("127.0.0.1", 0), _Handler, bind_and_activate=False)
        self._server.server_bind()
        self._server.model = self
        self._late = late
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        """Where it answers, without a path."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def turn(self, dialect: Dialect, path: str, body: dict[str, Any]) -> Turn:
        """Return what is answered to a request."""
        if not body.get("tools"):
            return Say("fine")
        number = 1
        with contextlib.suppress(OSError, ValueError):
            number = int(self._iteration.read_text())
        with self._asked:
            self.requests.append((path, body))
            self._asked.notify_all()
        turns = [turn for turn in self._script[min(number, len(self._script)) - 1] if not _is_over(turn)]
        return turns[min(dialect.answered(body), len(turns) - 1)]

    def hang(self) -> None:
        """Return when the server is to end."""
        self._over.wait()

    def listen(self) -> None:
        """Let agents connect."""
        self._server.server_activate()
        self._thread.start()

    def __enter__(self) -> Self:
        if not self._late:
            self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def _is_over(turn: Turn) -> bool:
    return isinstance(turn, Limited) and turn.until is not None and time.time() >= turn.until


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    model: Model

    def handle_error(self, _request: Any, _address: Any) -> None:
        """Say nothing: agents are killed in the middle of a request."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        """Be there."""
        self._answer(200, {})

    def do_GET(self) -> None:
        """Have no more to tell than a list of models."""
        self._answer(200, {"data": [], "models": [], "object": "list"})

    def do_POST(self) -> None:
        """Play the turn."""
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        dialect = next((dialect for dialect in DIALECTS if dialect.speaks(self.path)), None)
        if dialect is None:
            self._answer(200, {"input_tokens": INPUT_TOKENS, "totalTokens": INPUT_TOKENS})
            return
        turn = self.server.model.turn(dialect, self.path, body)
        if isinstance(turn, Hanging):
            self.server.model.hang()
        elif isinstance(turn, Limited):
            self._answer(429, *dialect.limited(turn.until))
        elif isinstance(turn, Failing):
            self._answer(turn.status, dialect.error(turn.status), dialect.hurry)
        elif isinstance(turn, Refusing) and turn.status == 200:  # in a stream that has begun
            self._stream([f"event: {turn.body['type']}\ndata: {json.dumps(turn.body)}\n\n"], 0.0)
        elif isinstance(turn, Refusing):
            self._answer(turn.status, turn.body, {**dialect.hurry, **turn.headers})
        elif isinstance(turn, Dropping):
            self._stream(list(dialect.events(Say("never heard"), body))[:1], 0.0)
        elif dialect.streams(self.path, body):
            self._stream(dialect.events(turn, body), turn.pause if isinstance(turn, Say) else 0.0)
        else:
            self._answer(200, dialect.whole(turn, body))

    def _answer(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Type": "application/json"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _stream(self, events: Sequence[str] | Iterator[str], pause: float) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events:
            self.wfile.write(event.encode())
            self.wfile.flush()
            if pause:
                time.sleep(pause)
