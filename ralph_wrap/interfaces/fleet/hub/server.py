"""Serve the repository of a hub over smart HTTP: git's own ``git http-backend`` behind Python's server.

``git daemon`` knows no passwords, and sshd needs accounts and host keys. ``git http-backend`` is maintained
with git, and Python is here already. There is no TLS: the hub is for the inside of a cluster, with a network
policy.

Each request has a thread, in a process of its own: the hub itself starts commands, and must have one thread.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import signal
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from ralph_wrap.interfaces.fleet.hub.repository import NAME
from ralph_wrap.system.process import ENDING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import BufferedReader
    from pathlib import Path
    from typing import BinaryIO

HEALTH = "/healthz"
"""The path that answers without a password, as long as the server works."""

_MOST = 32  # requests that git works on at the same time
_LONGEST_WAIT = 20.0  # seconds that a further one waits; a session gives a silent server up after 30 s
_RETRY = 10  # seconds after which a client shall come again
_SLOWEST = 60.0  # seconds without a byte of a client
_CHUNK = 1 << 16
_LARGEST = 1 << 16  # bytes of the head of an answer
_SERVICES = ("/info/refs", "/git-upload-pack", "/git-receive-pack")


class HubServer(ThreadingHTTPServer):
    """The server.

    Arguments:
        address: host and port to listen at; port 0 is a free one.
        directory: with the repository.
        credential: a file with one line ``user:password``, read at each request.
        environ: of git.

    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], directory: Path, credential: Path, environ: Mapping[str, str]
    ) -> None:
        super().__init__(address, HubHandler)
        self.directory = directory
        self.credential = credential
        self.environ = environ
        self.free = threading.BoundedSemaphore(_MOST)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing if a client has gone, and otherwise what the library prints."""
        if not isinstance(sys.exception(), (OSError, EOFError)):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class HubHandler(BaseHTTPRequestHandler):
    """Hands each request with the right password over to ``git http-backend``, as CGI does."""

    server: HubServer
    protocol_version = "HTTP/1.1"
    timeout = _SLOWEST
    server_version = "ralph-wrap"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a request without content."""
        self._answer()

    def do_POST(self) -> None:
        """Answer a request with content."""
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- as above
        """Print nothing: the forwarder says what happens."""

    def _answer(self) -> None:
        self.close_connection = True
        path, _, query = self.path.partition("?")
        if path == HEALTH:
            self._refuse(200, "ok")
        elif not self._is_known():
            self._refuse(401, "wrong user or password", ("WWW-Authenticate", 'Basic realm="ralph-wrap hub"'))
        elif path not in {f"/{NAME}{service}" for service in _SERVICES}:
            self._refuse(404, f"this hub has /{NAME} alone")
        else:
            # A file, not a pipe: git may answer before it has read everything.
            with tempfile.TemporaryFile(dir=self.server.directory) as content:
                for chunk in self._content():
                    content.write(chunk)
                length = content.tell()
                content.seek(0)
                if not self.server.free.acquire(timeout=_LONGEST_WAIT):
                    busy = f"the hub works on {_MOST} requests"
                    self._refuse(503, busy, ("Retry-After", str(_RETRY)))
                    return
                try:
                    self._run(path, query, content, length)
                finally:
                    self.server.free.release()

    def _is_known(self) -> bool:
        scheme, _, text = self.headers.get("Authorization", "").partition(" ")
        try:
            given = base64.b64decode(text, validate=True) if scheme.lower() == "basic" else b""
            wanted = self.server.credential.read_bytes().strip()
        except (binascii.Error, OSError):
            return False
        return bool(wanted) and hmac.compare_digest(given, wanted)

    def _refuse(self, status: int, words: str, *headers: tuple[str, str]) -> None:
        content = f"{words}\n".encode()
        self.send_response(status)
        for name, value in (*headers, ("Content-Type", "text/plain"), ("Content-Length", str(len(content)))):
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _content(self) -> Iterator[bytes]:
        """Yield the content of the request.

        Raises:
            ValueError: its length is no number.
            EOFError: the client has gone.

        """
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline(_LARGEST).split(b";")[0], 16):
                yield from self._read(size)
                self.rfile.readline(_LARGEST)
        else:
            yield from self._read(int(self.headers.get("Content-Length") or 0))

    def _read(self, size: int) -> Iterator[bytes]:
        while size > 0:
            if not (chunk := self.rfile.read(min(size, _CHUNK))):
                raise EOFError("the client has gone")
            size -= len(chunk)
            yield chunk

    def _run(self, path: str, query: str, content: BinaryIO, length: int) -> None:
        environ = {
            **self.server.environ,
            "GIT_PROJECT_ROOT": os.fspath(self.server.directory),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "REMOTE_ADDR": self.client_address[0],
            "REMOTE_USER": "session",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(length),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        reading, writing = os.pipe()
        try:
            pid = _start(environ, content.fileno(), writing)
        finally:
            os.close(writing)
        try:
            with open(reading, "rb") as answer:  # noqa: PTH123 -- a descriptor
                self._pass_on(answer)
        finally:
            os.waitpid(pid, 0)

    def _pass_on(self, answer: BufferedReader) -> None:
        headers = dict(_headers(answer))
        status = int((headers.pop("Status", "200").split() or ["500"])[0])
        self.send_response(status if headers else 500)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        while chunk := answer.read1(_CHUNK):  # what git has sent so far: a client gives a silent server up
            self.wfile.write(chunk)


def _start(environ: Mapping[str, str], stdin: int, stdout: int) -> int:
    """Start git, and return its pid. Several threads do this, so no code of ours runs in the child."""
    streams = [(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, stdout, 1)]
    return os.posix_spawnp(
        "git",
        ("git", "http-backend"),
        environ,
        file_actions=streams,
        setsigdef=[signal.SIGPIPE, *ENDING],
    )


def _headers(answer: BinaryIO) -> Iterator[tuple[str, str]]:
    """Yield the head of an answer of a CGI program."""
    while line := answer.readline(_LARGEST).strip():
        name, _, value = line.decode("latin-1").partition(":")
        yield name.strip(), value.strip()
