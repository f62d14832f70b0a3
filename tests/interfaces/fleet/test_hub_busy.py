"""A hub with more requests than it works on: the others wait for a while, and then get an answer."""

from __future__ import annotations

import base64
import os
import threading
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git import git_environment
from ralph_wrap.interfaces.fleet.hub import server
from ralph_wrap.interfaces.fleet.hub.repository import NAME
from tests.support.wait import CAP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.repo import Repo

PASSWORD = "agent:secret"  # noqa: S105 -- of a hub that lives for this test
SERVICE = f"/{NAME}/info/refs?service=git-upload-pack"


@pytest.fixture
def busy(repo: Repo, tmp_path: Path) -> Iterator[server.HubServer]:
    """Return a server that works on as many requests as it can."""
    repo.git("clone", "-q", "--bare", repo.path, tmp_path / "hub" / NAME)
    credential = tmp_path / "credential"
    credential.write_text(PASSWORD)
    environ = git_environment(os.environ)
    with server.HubServer(("127.0.0.1", 0), tmp_path / "hub", credential, environ) as hub:
        thread = threading.Thread(target=hub.serve_forever)
        thread.start()
        while hub.free.acquire(blocking=False):
            pass
        yield hub
        hub.shutdown()
        thread.join()


def ask(hub: server.HubServer) -> HTTPResponse:
    """Ask for the refs, as git does."""
    client = HTTPConnection("127.0.0.1", hub.server_port, timeout=CAP)
    token = base64.b64encode(PASSWORD.encode()).decode()
    client.request("GET", SERVICE, headers={"Authorization": f"Basic {token}"})
    return client.getresponse()


def test_a_request_too_many_gets_an_answer(busy: server.HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says when to come again, and git shows the reason."""
    monkeypatch.setattr(server, "_LONGEST_WAIT", 0.1)
    answer = ask(busy)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "10")
    assert b"32 requests" in answer.read()
    busy.free.release()
    assert ask(busy).status == 200


def test_a_request_waits_for_its_turn(busy: server.HubServer) -> None:
    """Another one ends meanwhile, so the request succeeds."""
    timer = threading.Timer(0.2, busy.free.release)
    timer.start()
    assert ask(busy).status == 200
    timer.join()
