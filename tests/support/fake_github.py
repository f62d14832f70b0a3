"""GitHub on loopback, as far as gh and git need it: its queries, and repositories to push to.

gh speaks plain HTTP to one host, ``github.localhost``. A proxy in the environment leads both programs
here, so no name is ever looked up.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from tests.support import git_cgi

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
        printed = {"id": f"{owner}/{name}", "name": name, "owner": {"login": owner}, "hasIssuesEnabled": True}
        more = {"url": f"http://{HOST}/{owner}/{name}", "defaultBranchRef": {"name": "main"}}
        return {"data": {"repository": {**printed, **more, "viewerPermission": "WRITE"}}}

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
        git_cgi.serve(self, self.hub.root)

    def do_POST(self) -> None:
        if not self.path.startswith(f"http://api.{HOST}/"):
            git_cgi.serve(self, self.hub.root)
            return
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = self.hub.answer(asked["query"], asked.get("variables") or {})
        self._send(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())

    def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
