"""The network of a sandbox: all of it, none, or a proxy to the listed hosts."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.session.sandbox.proxy import HostRule
from tests.support.agent_script import TRUSTED
from tests.support.sandboxes import PYTHON
from tests.support.sessions import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.repo import Repo


class _Greeting(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        """Say what only this server knows, after a request of one byte."""
        with contextlib.suppress(OSError):
            self.request.recv(1)
            self.request.sendall(b"greeting")


@pytest.fixture
def port() -> Iterator[int]:
    """Yield the port of a server on this machine."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Greeting) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


CLIENT = """
import os, socket, sys
host, port, *by_proxy = sys.argv[1:]
if by_proxy:
    there = os.environ["https_proxy"].rpartition("/")[2].split(":")
    client = socket.create_connection((there[0], int(there[1])))
    client.sendall(f"{by_proxy[0]} {host}:{port} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode())
    answer = b""
    while b"\\r\\n\\r\\n" not in answer:
        answer += client.recv(1) or b"\\r\\n\\r\\n"
    print(answer.split()[1].decode())
    if b" 200 " not in answer: sys.exit()
else:
    client = socket.create_connection((host, int(port)))
client.sendall(b"x")
print(client.recv(8).decode())
"""


@pytest.fixture
def connect(repo: Repo, script: Callable[[str], str], bwrap: str) -> Callable[..., list[str]]:
    """Return a function that connects from a sandbox, and returns what the client prints."""

    def connect(network: object, *requests: str, iterations: int = 1) -> list[str]:
        repo.write("client.py", CLIENT)
        repo.commit("a client")
        repo.write(".ralph/config.toml", f"sandbox_network = {json.dumps(network)}\n")
        lines = [f"{PYTHON} client.py {request} 2>/dev/null || echo failed" for request in requests]
        options = ("-n", str(iterations), "--sandbox", bwrap)
        result = run(repo.path, *options, "--", script("\n".join(lines)), env=TRUSTED)
        assert result.ending == ("max-iterations", iterations, 0), result.stderr
        return result.stdout.decode().split()

    return connect


def test_the_whole_network(connect: Callable[..., list[str]], port: int) -> None:
    """The control: the client reaches the server."""
    assert connect("all", f"127.0.0.1 {port}") == ["greeting"]


def test_no_network(connect: Callable[..., list[str]], port: int) -> None:
    """Neither the server of this machine, nor a proxy."""
    assert connect("none", f"127.0.0.1 {port}", f"localhost {port} CONNECT") == ["failed", "failed"]


def test_only_listed_hosts(connect: Callable[..., list[str]], port: int) -> None:
    """Through the proxy, in each iteration; other hosts, ports, methods and direct ways fail."""
    requests = {
        f"localhost {port} CONNECT": ["200", "greeting"],
        f"127.0.0.1 {port} CONNECT": ["403"],
        f"localhost {port + 1} CONNECT": ["403"],
        f"localhost.example.com {port} CONNECT": ["403"],
        f"localhost {port} GET": ["405"],
        f"127.0.0.1 {port}": ["failed"],
    }
    answers = [word for answer in requests.values() for word in answer]
    assert connect([f"localhost:{port}"], *requests, iterations=2) == answers * 2


def test_a_host_that_does_not_answer(connect: Callable[..., list[str]]) -> None:
    """The client learns it at once."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        port = closed.getsockname()[1]
        assert connect([f"127.0.0.1:{port}"], f"127.0.0.1 {port} CONNECT") == ["502"]


@pytest.mark.parametrize(
    ("entry", "host", "port", "fits"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "EXAMPLE.com.", 443, True),
        ("example.com", "example.com", 80, False),
        ("example.com", "www.example.com", 443, False),
        ("example.com", "badexample.com", 443, False),
        ("example.com:8443", "example.com", 8443, True),
        ("example.com:8443", "example.com", 443, False),
        ("*.example.com", "www.example.com", 443, True),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "badexample.com", 443, False),
    ],
)
def test_a_rule_fits_its_host(entry: str, host: str, port: int, *, fits: bool) -> None:
    """Names are compared whole, without regard to case."""
    assert HostRule(entry).fits(host, port) is fits
