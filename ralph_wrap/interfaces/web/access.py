"""Access control: only a browser that opened the printed address gets a page.

Every request and every answer passes through this module. It checks, in this order:

* **Host** must name this machine's loopback. Another name for it is an attack (DNS rebinding). The port may
  differ, because a tunnel has another one.
* **Token.** The printed address has the token in its query. The server then sets a cookie and redirects to an
  address without the token, so that the screen does not show it. Cookies ignore ports: the browser sends
  those of 127.0.0.1 to any other server on this loopback, for example to one that an agent started. So the
  cookie is valid only for a secret path, and all pages are below this path.
* **Origin.** Each request that changes something is a POST from one of our pages. The browser proves it by
  ``Origin`` or ``Sec-Fetch-Site``. Requests that another site embeds or opens are refused, too.

Browsers must not store or frame an answer, nor guess its type, and may run only our own script in it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of every page (www.w3.org/TR/CSP3)."""

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send "Origin: null" with our own forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?")
_COOKIE = "ralph-wrap"
_READING = {"GET", "HEAD"}
_TOKEN_BYTES = 32


class AccessControl:
    """Passes valid requests on to the pages.

    Arguments:
        token: the secret that gives access.
        read_only: refuse requests that change something.

    Attributes:
        token: the secret that gives access.
        path: the secret path of all pages; no other server gets our cookie without it.

    """

    def __init__(self, token: str, *, read_only: bool) -> None:
        self.token = token
        self._token = token.encode()
        self._read_only = read_only
        self._app: ASGIApp | None = None
        self.path = "/" + hashlib.sha256(b"path " + self._token).hexdigest()[:24]

    def before(self, app: ASGIApp) -> AccessControl:
        """Return this gate in front of the pages, which are below :attr:`path`."""
        self._app = app
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on to the pages."""
        assert scope["type"] == "http"
        assert self._app is not None

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._judge(scope)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _judge(self, scope: Scope) -> Response | None:
        """Return a refusal or the redirect to the pages; ``None`` for a request that may pass."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not _HOST.fullmatch(hosts[0].lower()):
            return _refused("The address must begin with http://127.0.0.1 or http://localhost.")
        method: str = scope["method"]
        if scope["path"] == "/" and method in _READING:
            return self._welcome(scope["query_string"])
        if not self._is_known(headers):
            return _refused("Open the address that <code>ralph-wrap web</code> has printed.")
        if not _is_ours(headers, hosts[0], writes=method not in _READING):
            return _refused("The request came from another site.")
        if method not in _READING and self._read_only:
            return _refused("This page was started with <code>--read-only</code>.")
        return None

    def _welcome(self, query: bytes) -> Response:
        [token, *_] = parse_qs(query).get(b"token", [b""])
        if not secrets.compare_digest(token, self._token):
            return _refused("Open the address that <code>ralph-wrap web</code> has printed.")
        answer = RedirectResponse(f"{self.path}/", 303)
        answer.set_cookie(_COOKIE, self.token, path=f"{self.path}/", httponly=True, samesite="strict")
        return answer

    def _is_known(self, headers: Headers) -> bool:
        # Any server of this host can set a malformed cookie. http.cookies then drops all that come after it.
        cookies = [part.strip().partition("=") for part in headers.get("cookie", "").split(";")]
        values = [value.encode() for name, _, value in cookies if name == _COOKIE]
        return any(secrets.compare_digest(value, self._token) for value in values)


def new_token() -> str:
    """Return a random token of 256 bits."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def _is_ours(headers: Headers, host: str, *, writes: bool) -> bool:
    """Return whether a request came from one of our pages; to read, also from the address bar."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if writes:
        return (origin == f"http://{host}" or (origin is None and site == "same-origin")) and site in {
            "same-origin",
            None,
        }
    return site in {"same-origin", "none", None} and origin in {f"http://{host}", None}


def _refused(reason: str) -> Response:
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>403 · ralph-wrap</title>'
        f"<h1>403</h1><p>{reason}"
    )
    return HTMLResponse(page, 403)
