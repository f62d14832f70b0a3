"""The recipes of ``docs/notify.md``, as they stand there, at servers of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import threading
import tomllib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiosmtpd.controller import UnthreadedController
from jeepney import DBusAddress, MessageType, new_error, new_method_call, new_method_return
from jeepney.io.blocking import open_dbus_connection

from tests.support.needs import needs, program
from tests.support.sessions import PROGRAM, run
from tests.support.terminal import Terminal
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.repo import Repo

PAGE = (Path(__file__).parents[2] / "docs/notify.md").read_text()
DESKTOP, NTFY, SLACK, DISCORD, MAIL = (
    tomllib.loads(block)["notify"] for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
)
DONE = ("--", "sh", "-c", "echo '<promise>COMPLETE</promise>'")
TITLE = '@a "b" caf\u00e9'
SUMMARY = f"{TITLE}: done after 1 iteration"


@pytest.fixture(autouse=True)
def _trusted(_sealed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RALPH_TRUST", "1")


def notified(repo: Repo, recipe: str, **env: str) -> None:
    """Run a session that ends well, and whose recipe succeeds."""
    repo.write(".ralph/config.toml", f"notify = {json.dumps(recipe)}\n")
    result = run(repo.path, "--name", TITLE, *DONE, env=env)
    assert result.ending == ("promise", 1, 0)
    assert [line for line in result.warnings if line["event"] == "notify.failed"] == []


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.got.append((self.path, self.headers.get("Title"), body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[HTTPServer]:
    """Yield a server that remembers what it got."""
    made = HTTPServer(("127.0.0.1", 0), _Handler)
    made.got = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@needs(program("curl", "curl"))
@pytest.mark.parametrize(
    ("recipe", "got"),
    [
        (NTFY, ("/my-topic", "done", SUMMARY)),
        (SLACK, ("/services/T0/B0/x", None, json.dumps({"text": SUMMARY}))),
        (DISCORD, ("/api/webhooks/0/x", None, json.dumps({"content": SUMMARY}))),
    ],
    ids=["ntfy", "slack", "discord"],
)
def test_a_message_arrives_at_a_webhook(
    repo: Repo, web: HTTPServer, recipe: str, got: tuple[str, str | None, str]
) -> None:
    """Also with a quote in the title, and with what curl takes for the name of a file."""
    notified(repo, re.sub(r"https://[a-z.]*", f"http://127.0.0.1:{web.server_port}", recipe))
    assert [(path, title, body.strip()) for path, title, body in web.got] == [got]  # type: ignore[attr-defined]


class _Mailbox:
    """What a server for mail does with a message: it remembers it."""

    def __init__(self) -> None:
        self.got: list[tuple[str, list[str], bytes]] = []

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802 -- of aiosmtpd
        self.got.append((envelope.mail_from, envelope.rcpt_tos, envelope.content))
        return "250 OK"


@needs(program("curl", "curl"))
def test_a_message_arrives_as_mail(repo: Repo) -> None:
    """At a server that speaks SMTP."""
    mailbox = _Mailbox()
    loop = asyncio.new_event_loop()
    controller = UnthreadedController(mailbox, hostname="127.0.0.1", port=0, loop=loop)
    controller.begin()  # type: ignore[no-untyped-call]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        assert isinstance(controller.server, asyncio.Server)
        port = controller.server.sockets[0].getsockname()[1]
        notified(repo, MAIL.replace("smtps://mail.example.com", f"smtp://127.0.0.1:{port}"))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        controller.end()  # type: ignore[no-untyped-call]
        loop.close()
    [(sender, receivers, content)] = mailbox.got
    assert (sender, receivers) == ("ralph@example.com", ["me@example.com"])
    head, _, body = content.decode().replace("\r\n", "\n").partition("\n\n")
    assert "Subject: ralph-wrap: done\n" in f"{head}\n"
    assert body.strip() == SUMMARY


@contextmanager
def _bus() -> Iterator[str]:
    """Yield the address of a D-Bus of our own."""
    words = ("dbus-daemon", "--session", "--nofork", "--print-address")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as daemon:
        try:
            assert daemon.stdout is not None
            yield daemon.stdout.readline().strip()
        finally:
            daemon.kill()


def _serve_notifications(address: str, ready: threading.Event, got: list[tuple[Any, ...]]) -> None:
    """Be the service that shows notifications, until one came (Desktop Notifications Specification)."""
    with open_dbus_connection(address) as connection:
        bus = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
        own = new_method_call(bus, "RequestName", "su", ("org.freedesktop.Notifications", 4))
        connection.send_and_get_reply(own)
        ready.set()
        answers: dict[str, tuple[str, tuple[Any, ...]]] = {
            "GetServerInformation": ("ssss", ("test", "test", "1", "1.2")),
            "GetCapabilities": ("as", (["body"],)),
            "Notify": ("u", (1,)),
        }
        while not got:
            message = connection.receive(timeout=60)
            if message.header.message_type is not MessageType.method_call:
                continue
            called = message.header.fields[3]  # the member (D-Bus Specification)
            if called in answers:
                connection.send(new_method_return(message, *answers[called]))
            else:
                connection.send(new_error(message, "org.freedesktop.DBus.Error.UnknownMethod"))
            if called == "Notify":
                got.append(message.body)


@needs(program("notify-send", "libnotify-bin"), program("dbus-daemon", "dbus-daemon"))
def test_a_message_arrives_on_the_desktop(repo: Repo) -> None:
    """At the service of the session bus that shows it."""
    got: list[tuple[Any, ...]] = []
    with _bus() as address:
        ready = threading.Event()
        service = threading.Thread(target=_serve_notifications, args=(address, ready, got))
        service.start()
        assert ready.wait(60)
        notified(repo, DESKTOP, DBUS_SESSION_BUS_ADDRESS=address)
        service.join()
    [(_application, _replaces, _icon, title, text, *_)] = got
    assert (title, text) == (TITLE, SUMMARY)


@needs(program("tmux", "tmux"))
def test_the_call_of_the_terminal_goes_through_tmux(repo: Repo, tmp_path: Path) -> None:
    """With the line of the page in its configuration; tmux would swallow it otherwise."""
    [line] = re.findall(r"`(set -g allow-passthrough on)`", PAGE)
    configuration = tmp_path / "tmux.conf"
    configuration.write_text(f"{line}\n")
    tmux = ("tmux", "-S", os.fspath(tmp_path / "socket"), "-f", os.fspath(configuration))
    words = (PROGRAM, "run", "-n", "1", "--name", "sh", "--", "sh", "-c", "true")
    env = {"TERM": "xterm-256color", "TMUX": "", "RALPH_WRAP_LOG_FORMAT": "text"}
    wanted = b"\x1b]9;sh: limit reached after 1 iteration\x07"
    with Terminal(
        *tmux, "new-session", *words, ";", "set", "remain-on-exit", "on", cwd=repo.path, env=env
    ) as terminal:
        try:
            eventually(lambda: wanted in terminal.read(), "the notification behind tmux")
        finally:
            subprocess.run((*tmux, "kill-server"), check=False, capture_output=True)
