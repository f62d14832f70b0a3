"""The pages: in this process without a socket, and by the program, on one."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from ralph_wrap.interfaces.web.access import AccessControl
from ralph_wrap.interfaces.web.app import application
from ralph_wrap.interfaces.web.flash import FlashMessages
from ralph_wrap.interfaces.web.pages import PageContext
from ralph_wrap.interfaces.web.review_cache import ReviewCache
from ralph_wrap.state.project import find_project
from ralph_wrap.system.cancel import NEVER
from tests.support.sessions import PROGRAM
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.repo import Repo

TOKEN = "a-token-that-nobody-knows"  # noqa: S105 -- of tests


class Answer(NamedTuple):
    """Status, headers in lower case, and body of an answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


@dataclass(frozen=True)
class Pages:
    """The pages of a project, asked without a socket."""

    gate: AccessControl
    context: PageContext

    @property
    def root(self) -> str:
        """The path that all pages are below."""
        return self.gate.path

    @property
    def known(self) -> dict[str, str]:
        """Headers of a browser that has opened the address that was printed."""
        return {"host": "127.0.0.1:8000", "cookie": f"ralph-wrap={TOKEN}"}

    def ask(self, method: str, target: str, headers: dict[str, str], body: bytes = b"") -> Answer:
        """Send a request as it is."""
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "http_version": "1.1",
            "scheme": "http",
        }
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self.gate(scope, receive, send))
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:]))

    def get(self, page: str = "") -> Answer:
        """Return a page, as a browser gets it that may."""
        return self.ask("GET", f"{self.root}/{page}", self.known)

    def post(self, button: str, *fields: tuple[str, str], **headers: str) -> Answer:
        """Press a button."""
        given = {**self.known, "origin": "http://127.0.0.1:8000", **headers}
        return self.ask("POST", f"{self.root}/{button}", given, urlencode(fields).encode())

    def note(self, answer: Answer) -> str:
        """Return the words that a button has left for the next page, one after the other."""
        assert answer.status == 303, answer
        note = self.context.notes.get(answer.headers["location"].rpartition("note=")[2])
        assert note is not None
        return " | ".join((note.kind, *note.lines, *filter(None, [note.hint])))


def pages(project: Path, *, read_only: bool = False) -> Pages:
    """Return the pages of a project."""
    found_project = find_project(project, os.environ)
    facts = ReviewCache(found_project)
    gate = AccessControl(TOKEN, read_only=read_only)
    context = PageContext(found_project, facts, FlashMessages(), read_only, NEVER)
    gate.before(application(context, gate.path))
    return Pages(gate, context)


def words(html: str) -> str:
    """Return the text between the tags, as a test can compare it."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).replace("\N{MINUS SIGN}", "-").split())


def work_on(repo: Repo, name: str, files: dict[str, str | bytes], message: str = "work") -> str:
    """Make a branch of one commit, and return that."""
    repo.git("switch", "--quiet", "--create", name, "main")
    for path, content in files.items():
        repo.write(path, content)
    commit = repo.commit(message)
    repo.git("switch", "--quiet", "main")
    return commit


class Served(NamedTuple):
    """The program while it serves: its process, and the address that it has printed."""

    process: subprocess.Popen[bytes]
    url: str

    @property
    def port(self) -> int:
        """Where it listens."""
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
        """Send a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=CAP)
        try:
            connection.request(method, target, body or None, headers)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()


@contextmanager
def serving(project: Path, *arguments: str) -> Iterator[Served]:
    """Have the program serve the pages of a project; leaving the context kills what is left of it."""
    process = subprocess.Popen(
        (PROGRAM, "web", "-C", project, *arguments),
        cwd=project.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("http://"), process.communicate()
        yield Served(process, line.strip())
    finally:
        process.kill()
        with process:
            pass


def compared(context: Pages) -> Answer:
    """Return the first page once the branches on it were compared."""

    def look() -> Answer | None:
        answer = context.get()
        waits = 'http-equiv="refresh" content="1"' in answer.text or "data-stale" in answer.text
        return None if waits else answer

    return eventually(look, "the branches to be compared")
