"""Git's own server program behind a Python server: one request, as CGI hands it over.

It imports only the standard library: a program of its own on another machine uses it, too.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path


def serve(handler: BaseHTTPRequestHandler, root: str | Path, user: str = "tester") -> None:
    """Answer a request as git-http-backend(1) does, for the repositories in a directory."""
    body = _body(handler)
    headers = handler.headers
    path, _, query = handler.path.partition("?")
    if "://" in path:  # a client that takes us for its proxy names the host, too
        path = "/" + path.split("/", 3)[3]
    environ = {
        **os.environ,
        "GIT_PROJECT_ROOT": os.fspath(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "REMOTE_USER": user,
        "REMOTE_ADDR": handler.client_address[0],
        "REQUEST_METHOD": handler.command,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_TYPE": headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": headers.get("Git-Protocol", ""),
    }
    done = subprocess.run(("git", "http-backend"), input=body, env=environ, capture_output=True, check=False)
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    found = dict(row.split(": ", 1) for row in head.decode().split("\r\n") if ": " in row)
    handler.send_response(int(found.pop("Status", "200").split()[0]))
    for name, value in {**found, "Content-Length": str(len(content))}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(content)


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding") == "chunked":
        return b"".join(iter(lambda: _chunk(handler), b""))
    return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))


def _chunk(handler: BaseHTTPRequestHandler) -> bytes:
    size = int(handler.rfile.readline(), 16)
    chunk = handler.rfile.read(size)
    handler.rfile.readline()
    return chunk
