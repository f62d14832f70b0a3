"""The addresses of the pages and buttons."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from ralph_wrap.errors import ConflictError, NotFoundError, RalphError, RefusedError, UsageError
from ralph_wrap.interfaces.web import actions, pages, static_files
from ralph_wrap.interfaces.web.pages import PageContext
from ralph_wrap.interfaces.web.templates import render
from ralph_wrap.system.log import get_logger, traceback_of

log = get_logger()

_STATUS: dict[type[RalphError], int] = {
    UsageError: 400,
    NotFoundError: 404,
    RefusedError: 409,
    ConflictError: 409,
}
_LONGEST_FORM = 1 << 16  # bytes


def application(context: PageContext, root: str) -> ASGIApp:
    """Return the ASGI application with all pages and buttons.

    Arguments:
        root: the path of the first page; all others are below it.

    """

    def page(name: str, template: str = "") -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            query = _query(request.scope["query_string"])
            return _shown(context, root, name, template or f"{name}.html", query)

        return answer

    def button(name: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            body = await _body(request)
            if isinstance(body, Response):
                return body
            back = await actions.press(name, context, _form(body))
            return RedirectResponse(f"{root}/{back}", 303)

        return answer

    routes = [
        Route("/", page("overview")),
        Route("/live", page("live")),
        *(
            Route(f"/{name}", page(name))
            for name in ("branch", "saved", "dropped", "commit", "against", "file", "session")
        ),
        Route("/part", page("file", "part.html")),
        Route("/progress", page("session", "progress.html")),
        Route("/static/{name}", _asset),
        *(Route(f"/{name}", button(name), methods=["POST"]) for name in actions.BUTTONS),
    ]
    return Starlette(routes=[Mount(root, routes=routes)])


async def _body(request: Request) -> bytes | Response:
    """Return the content of a form, or the refusal of one that is too long or incomplete."""
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > _LONGEST_FORM:
                return PlainTextResponse("too long", 413)
    except ClientDisconnect:  # an incomplete form must do nothing
        return PlainTextResponse("gone", 400)
    return body


def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in static_files.KINDS:
        return PlainTextResponse("not found", 404)
    return Response(static_files.CONTENT[name], media_type=static_files.KINDS[name])


def _shown(context: PageContext, root: str, name: str, template: str, query: dict[str, str]) -> Response:
    frame = {"site": context, "root": root}
    try:
        return HTMLResponse(render(template, **frame, **pages.content(context, name, query)))
    except RalphError as error:
        status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
        return HTMLResponse(render("error.html", **frame, error=error), status)
    except Exception as error:  # noqa: BLE001 -- a bug: the next page may work
        problem = RalphError(f"ralph-wrap failed: {error!r}", "please report this with the output on stderr")
        log.error("page.failed", problem.message, page=name, traceback=traceback_of(error))
        return HTMLResponse(render("error.html", **frame, error=problem), 500)


def _query(query: bytes) -> dict[str, str]:
    """Return the parameters of an address; a file name may hold any byte."""
    return dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="surrogateescape"))


def _form(body: bytes) -> dict[str, list[str]]:
    """Return the fields of a form."""
    fields: dict[str, list[Any]] = {}
    for name, value in parse_qsl(body.decode("latin-1"), keep_blank_values=True, errors="surrogateescape"):
        fields.setdefault(name, []).append(value)
    return fields
