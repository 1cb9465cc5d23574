"""The labelling page's address on loopback, and who may use it.

The server writes to a file, so no other site in the same browser, and no other user of the machine, may
reach it. Every path begins with a secret, which only the command prints; a request must name loopback as its
host, so that a site whose name resolves to loopback gets nothing; a change must come from the page itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib import resources
from secrets import token_urlsafe
from typing import Any, Literal

import msgspec
from aiohttp import web

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.http.pages import DATA_HEADERS, page_headers
from knowledgepulse_worker.http.server import listening
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings import WebSettings
from knowledgepulse_worker.tools.policies.labelling.session import Session
from knowledgepulse_worker.tools.policies.labelling.trace_view import content_view, score_view, shortened_view

PAGE = resources.files("knowledgepulse_worker.tools.policies.labelling").joinpath("label.html").read_bytes()
HOST = "127.0.0.1"

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Change(msgspec.Struct):
    """A request to decide on the current trace, or to undo the last decision.

    Attributes:
        revision: of the state that the page shows.
        verdict: the decision.
    """

    revision: int
    verdict: Literal["keep", "drop", "skip", "undo"]


_read_change = msgspec.json.Decoder(Change).decode


@asynccontextmanager
async def serving_labels(session: Session, policy: Policy, port: int) -> AsyncIterator[str]:
    """Serve the page, and yield its address.

    Raises:
        StartError: the port is in use.
    """
    secret = token_urlsafe(16)
    hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
    handlers = _Handlers(session, policy)
    app = web.Application(middlewares=[_guard(hosts)])
    app.router.add_get(f"/{secret}/", handlers.page)
    app.router.add_get(f"/{secret}/api/trace", handlers.trace)
    app.router.add_post(f"/{secret}/api/label", handlers.label)
    async with listening(WebSettings(host=HOST, port=port), app, "--port"):
        yield f"http://{HOST}:{port}/{secret}/"


def _guard(hosts: set[str]) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
        if request.host not in hosts:
            return web.Response(status=HTTPStatus.MISDIRECTED_REQUEST, text="unknown host\n")
        is_change = request.method not in ("GET", "HEAD")
        if is_change and request.headers.get("Origin") != f"http://{request.host}":
            return web.Response(status=HTTPStatus.FORBIDDEN, text="only the page itself may change labels\n")
        return await handler(request)

    return guard


class _Handlers:
    def __init__(self, session: Session, policy: Policy) -> None:
        self._session = session
        self._policy = policy
        self._headers = page_headers(PAGE)

    async def page(self, _request: web.Request) -> web.Response:
        return web.Response(body=PAGE, headers=self._headers)

    async def trace(self, _request: web.Request) -> web.Response:
        return self._state(HTTPStatus.OK)

    async def label(self, request: web.Request) -> web.Response:
        try:
            change = _read_change(await request.read())
        except msgspec.DecodeError as error:
            return _json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        if change.revision != self._session.revision:  # of another tab, or a key pressed twice
            return self._state(HTTPStatus.CONFLICT)
        try:
            if change.verdict == "undo":
                self._session.undo()
            else:
                self._session.decide(change.verdict)
        except InputError as error:
            return _json({"error": str(error)}, HTTPStatus.INSUFFICIENT_STORAGE)
        return self._state(HTTPStatus.OK)

    def _state(self, status: HTTPStatus) -> web.Response:
        session, current = self._session, self._session.current
        kept, dropped = session.counts[True], session.counts[False]
        state: dict[str, Any] = {
            "revision": session.revision,
            "by": session.by,
            "file": str(session.file.path),
            "total": session.total,
            "kept": kept,
            "dropped": dropped,
            "can_undo": session.can_undo,
            "trace": None,
        }
        if current is not None:
            record = current.record
            state["trace"] = {
                "id": record.id,
                "source": record.source,
                "domain": record.task_domain,
                **(shortened_view(record) if current.value is None else content_view(current.value)),
                **score_view(record, self._policy),
            }
        return _json(state, status)


def _json(value: object, status: HTTPStatus) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), headers=DATA_HEADERS, status=status)
