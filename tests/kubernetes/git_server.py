"""A git server over HTTP for the sessions of a cluster, and a journal of what their agents have written.

Two programs of the machine that serves: ``git_server.py serve DIRECTORY ADDRESS``, and ``journal`` for
``serve``. They import only the standard library. An agent sends a datagram for each line that it has written,
and the file ``journal`` gets it, also while the git server is away.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

PORT = 80
JOURNAL_PORT = 9000


class Handler(BaseHTTPRequestHandler):
    """Hands each request over to ``git http-backend``, as CGI does."""

    root: ClassVar[str]

    def do_GET(self) -> None:  # noqa: D102 - the name is that of the library
        self._answer(b"")

    def do_POST(self) -> None:  # noqa: D102 - the same
        if self.headers.get("Transfer-Encoding") == "chunked":
            self._answer(b"".join(iter(self._chunk, b"")))
        else:
            self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _chunk(self) -> bytes:
        size = int(self.rfile.readline(), 16)
        chunk = self.rfile.read(size)
        self.rfile.readline()
        return chunk

    def _answer(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        environ = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": self.root,
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": self.root,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "REMOTE_ADDR": self.client_address[0],
            "REMOTE_USER": "session",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(
            ("git", "http-backend"), input=body, env=environ, capture_output=True, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002, D102 - names of the library
        print(self.client_address[0], format % arguments, flush=True)  # noqa: T201


class Server(ThreadingHTTPServer):
    """The server, whose port is free again at once after a kill."""

    daemon_threads = True
    request_queue_size = 128


def serve(root: str, address: str) -> None:
    """Serve until a signal ends the process."""
    Handler.root = root
    Server((address, PORT), Handler).serve_forever()


def keep_journal(root: str, address: str) -> None:
    """Append each datagram to the journal until a signal ends the process."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        (Path(root) / "journal").open("ab", buffering=0) as journal,
    ):
        datagrams.bind((address, JOURNAL_PORT))
        while True:
            journal.write(datagrams.recv(4096))


if __name__ == "__main__":
    {"serve": serve, "journal": keep_journal}[sys.argv[1]](*sys.argv[2:])
