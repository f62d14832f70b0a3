"""GitHub on loopback, as far as gh and git need it: its queries, and repositories to push to.

gh speaks plain HTTP to one host, ``github.localhost``. A proxy in the environment leads both programs
here, so no name is ever looked up.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pathlib import Path

HOST = "github.localhost"

_Variables = dict[str, Any]


class GitHub:
    """The server; entering it starts it.

    Arguments:
        root: where its repositories are: ``OWNER/NAME.git``.

    Attributes:
        pulls: open pull requests, each as gh has sent it. Added are its ``url``, and the ``owner`` of the
            repository of its ``head``.
        refusal: its answer to a request to open one; empty if that may be opened.
        asked: names of the queries, in order.

    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pulls: list[_Variables] = []
        self.refusal = ""
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def env(self) -> dict[str, str]:
        """The environment in which programs find it, logged in."""
        proxy = f"http://127.0.0.1:{self._server.server_address[1]}"
        return {"http_proxy": proxy, "no_proxy": "", "GH_HOST": HOST, "GH_TOKEN": "token"}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, query: str, variables: _Variables) -> dict[str, Any]:
        """Return what a query of gh's gets."""
        if "createPullRequest" in query:
            self.asked.append("create")
            if self.refusal:
                return {"data": None, "errors": [{"message": self.refusal, "path": ["createPullRequest"]}]}
            return self._create(variables["input"])
        if "pullRequests(" in query:
            self.asked.append("list")
            base, head = variables.get("baseBranch"), variables.get("headBranch")
            found = [
                pull for pull in self.pulls if base == pull["baseRefName"] and head == pull["headRefName"]
            ]
            page = {"hasNextPage": False, "endCursor": ""}
            nodes = [{"url": pull["url"], "headRepositoryOwner": {"login": pull["owner"]}} for pull in found]
            listed = {"totalCount": len(nodes), "nodes": nodes, "pageInfo": page}
            return {"data": {"repository": {"pullRequests": listed}}}
        self.asked.append("repository")
        owner, name = variables["owner"], variables["name"]
        told = {"id": f"{owner}/{name}", "name": name, "owner": {"login": owner}, "hasIssuesEnabled": True}
        more = {"url": f"http://{HOST}/{owner}/{name}", "defaultBranchRef": {"name": "main"}}
        return {"data": {"repository": {**told, **more, "viewerPermission": "WRITE"}}}

    def _create(self, sent: _Variables) -> dict[str, Any]:
        url = f"http://{HOST}/{sent['repositoryId']}/pull/{len(self.pulls) + 1}"
        owner, _, branch = sent["headRefName"].rpartition(":")
        known = {"url": url, "head": sent["headRefName"], "headRefName": branch}
        self.pulls.append({**sent, **known, "owner": owner or sent["repositoryId"].partition("/")[0]})
        return {"data": {"createPullRequest": {"pullRequest": {"id": "1", "url": url}}}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: GitHub

    def do_GET(self) -> None:
        self._serve_git()

    def do_POST(self) -> None:
        if not self.path.startswith(f"http://api.{HOST}/"):
            self._serve_git()
            return
        asked = json.loads(self._body())
        answer = self.hub.answer(asked["query"], asked.get("variables") or {})
        self._send(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _serve_git(self) -> None:
        """Answer as git does (git-http-backend(1))."""
        asked = urlsplit(self.path)
        body = self._body()
        env = {
            **os.environ,
            "GIT_PROJECT_ROOT": os.fspath(self.hub.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "tester",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": asked.path,
            "QUERY_STRING": asked.query,
            "CONTENT_TYPE": self.headers.get("Content-Type") or "",
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
        }
        done = subprocess.run(("git", "http-backend"), input=body, env=env, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(row.split(": ", 1) for row in head.decode().split("\r\n"))
        self._send(int(headers.pop("Status", "200").split(" ")[0]), headers, content)

    def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
