"""The HTTP port of a command without a status page: metrics and probes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from knowledgepulse_worker.http import probes
from knowledgepulse_worker.http.server import METRICS, listening, probe_response
from knowledgepulse_worker.settings import WebSettings


@asynccontextmanager
async def serving_metrics(
    settings: WebSettings, render: Callable[[], tuple[str, bytes]], not_ready: Callable[[], Sequence[str]]
) -> AsyncIterator[None]:
    """Serve the port.

    Args:
        settings: the address.
        render: returns the content type and the metrics page.
        not_ready: returns the reasons why the process is not ready; an empty sequence if it is.

    Raises:
        StartError: the address is invalid or in use.
    """

    async def page(_request: web.Request) -> web.Response:
        content_type, body = render()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def live(_request: web.Request) -> web.Response:
        return probe_response(*probes.live())

    async def ready(_request: web.Request) -> web.Response:
        return probe_response(*probes.ready(not_ready()))

    app = web.Application()
    app.router.add_get(METRICS, page)
    app.router.add_get(probes.LIVE, live)
    app.router.add_get(probes.READY, ready)
    async with listening(settings, app):
        yield
