"""A git server over HTTP for the sessions of a cluster, and a journal of what their agents have written.

Two programs of the machine that serves: ``-m tests.kubernetes.git_server serve DIRECTORY ADDRESS``, and
``journal`` for ``serve``. They import only the standard library and :mod:`tests.support.git_cgi`. An agent
sends a datagram for each line that it has written, and the file ``journal`` gets it, also while the git
server is away.
"""

from __future__ import annotations

import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from tests.support import git_cgi

PORT = 80
JOURNAL_PORT = 9000


class Handler(BaseHTTPRequestHandler):
    """Hands each request over to ``git http-backend``, as CGI does."""

    root: ClassVar[str]

    def do_GET(self) -> None:  # noqa: D102 - the name is that of the library
        git_cgi.serve(self, self.root, user="session")

    do_POST = do_GET  # noqa: N815 - the same

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
