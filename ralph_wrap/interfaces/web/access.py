"""Who may ask for a page: nobody but the browser of the person who was told the address.

Every request goes through here first, and every answer on its way out. In this order:

* **Host** names this machine's loopback. Another name that leads here is an attack (DNS rebinding). The port
  is not looked at: a tunnel has another one.
* **Token.** The address that is printed has it in its query; whoever has it is given a cookie instead, and an
  address that can be looked at. Cookies know no ports: any other server on this loopback, an agent's for one,
  is sent those for 127.0.0.1. So this one is for a path that nobody can guess, and everything is below that.
* **Origin.** What changes something is a POST, and comes from a page of ours: the browser says so by
  ``Origin`` or ``Sec-Fetch-Site``. What another site embeds or opens is refused, too.

What comes back is never kept, framed or mistaken for another type, and nothing in it runs but our own script.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Of every page (www.w3.org/TR/CSP3)."""

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


class Gate:
    """Lets requests through to the pages.

    Arguments:
        token: who knows it may come in.
        read_only: nothing may be changed.

    Attributes:
        token: the same.
        path: where all pages are; no other server that gets our cookie can know it.

    """

    def __init__(self, token: str, *, read_only: bool) -> None:
        self.token = token
        self._token = token.encode()
        self._read_only = read_only
        self._app: ASGIApp | None = None
        self.path = "/" + hashlib.sha256(b"path " + self._token).hexdigest()[:24]

    def before(self, app: ASGIApp) -> Gate:
        """Stand before the pages, which are below :attr:`path`."""
        self._app = app
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it through."""
        assert scope["type"] == "http"
        assert self._app is not None

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._judge(scope)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _judge(self, scope: Scope) -> Response | None:
        """Return the answer to who does not come in, or not yet; ``None`` for the others."""
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
        [given, *_] = parse_qs(query).get(b"token", [b""])
        if not secrets.compare_digest(given, self._token):
            return _refused("Open the address that <code>ralph-wrap web</code> has printed.")
        answer = RedirectResponse(f"{self.path}/", 303)
        answer.set_cookie(_COOKIE, self.token, path=f"{self.path}/", httponly=True, samesite="strict")
        return answer

    def _is_known(self, headers: Headers) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(_COOKIE)
        except CookieError:
            return False
        return cookie is not None and secrets.compare_digest(cookie.value.encode(), self._token)


def new_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def _is_ours(headers: Headers, host: str, *, writes: bool) -> bool:
    """Tell whether the browser says that a request came from a page of ours, or, to read, from a person."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if writes:
        return (origin == f"http://{host}" or (origin is None and site == "same-origin")) and site in {
            "same-origin",
            None,
        }
    return site in {"same-origin", "none", None} and origin in {f"http://{host}", None}


def _refused(why: str) -> Response:
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>403 · ralph-wrap</title>'
        f"<h1>403</h1><p>{why}"
    )
    return HTMLResponse(page, 403)
