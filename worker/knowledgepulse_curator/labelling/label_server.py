"""Serve the labelling page on loopback, to the labeller alone.

The server writes to a file, so neither other sites in the same browser nor other users of the machine may
reach it. Every path begins with a secret that only the command prints. A request must name loopback as its
host, so that a site whose name resolves to loopback gets nothing. A change must come from the page itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib import resources
from secrets import token_urlsafe
from typing import Any, Literal

import msgspec
from aiohttp import web

from knowledgepulse_curator.labelling.label_session import LabelSession
from knowledgepulse_curator.labelling.traces_to_label import score_view, text_view
from knowledgepulse_curator.labels.labels import MIN_SUPPORT
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.http.pages import DATA_HEADERS, page_headers
from knowledgepulse_worker.http.server import listening
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.decode_errors import DECODE_ERRORS
from knowledgepulse_worker.settings import WebSettings

_PAGE = resources.files("knowledgepulse_curator.labelling").joinpath("label.html").read_bytes()
_HOST = "127.0.0.1"


class _Change(msgspec.Struct):
    revision: int  # of the state that the page shows
    verdict: Literal["keep", "drop", "skip", "undo"]


_read_change = msgspec.json.Decoder(_Change).decode


@asynccontextmanager
async def serving_labels(
    session: LabelSession, policy: Policy, texts: Mapping[str, str], port: int
) -> AsyncIterator[str]:
    """Serve the page, and yield its address; raise a StartError if the port is in use.

    ``texts``: the criteria by which to judge (`rubric`), and the next command (`next`).
    """
    headers = page_headers(_PAGE)

    async def page(_request: web.Request) -> web.Response:
        return web.Response(body=_PAGE, headers=headers)

    async def trace(_request: web.Request) -> web.Response:
        return _json(_state(session, policy, texts))

    async def label(request: web.Request) -> web.Response:
        try:
            change = _read_change(await request.read())
            fits = change.revision == session.revision  # else it is of another tab, or a key pressed twice
            if fits and change.verdict == "undo" and session.can_undo:
                session.undo()
            elif fits and change.verdict != "undo" and session.current is not None:
                session.decide(change.verdict)
        except DECODE_ERRORS as error:
            return _json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        except InputError as error:
            return _json({"error": str(error)}, HTTPStatus.INSUFFICIENT_STORAGE)
        return _json(_state(session, policy, texts), HTTPStatus.OK if fits else HTTPStatus.CONFLICT)

    secret = token_urlsafe(16)
    app = web.Application(middlewares=[_guard({f"{name}:{port}" for name in (_HOST, "localhost")})])
    app.router.add_get(f"/{secret}/", page)
    app.router.add_get(f"/{secret}/api/trace", trace)
    app.router.add_post(f"/{secret}/api/label", label)
    async with listening(WebSettings(host=_HOST, port=port), app, "--port"):
        yield f"http://{_HOST}:{port}/{secret}/"


def _guard(hosts: set[str]) -> Any:
    @web.middleware
    async def guard(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.host not in hosts:
            return web.Response(status=HTTPStatus.MISDIRECTED_REQUEST, text="unknown host\n")
        is_change = request.method not in ("GET", "HEAD")
        if is_change and request.headers.get("Origin") != f"http://{request.host}":
            return web.Response(status=HTTPStatus.FORBIDDEN, text="only the page itself may change labels\n")
        return await handler(request)

    return guard


def _state(session: LabelSession, policy: Policy, texts: Mapping[str, str]) -> dict[str, Any]:
    state = {
        "revision": session.revision,
        "by": session.by,
        "file": str(session.file.path),
        "total": session.total,
        "kept": session.counts[True],
        "dropped": session.counts[False],
        "skipped": session.skipped,
        "needed": MIN_SUPPORT,
        "notes": session.notes,
        **texts,
        "can_undo": session.can_undo,
    }
    if session.current is None:
        return state | {"trace": None}
    record = session.current.record
    identity = {name: getattr(record, name) for name in ("id", "source", "task_domain")}
    content = text_view(session.current.value, record.content)
    content["step_count"] = record.counts.steps if record.counts else len(content["steps"])
    others = [(name, session.is_kept(name)) for name in session.current.other_runs]
    return state | {"trace": identity | content | score_view(record, policy) | {"other_runs": others}}


def _json(value: object, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), headers=DATA_HEADERS, status=status)
