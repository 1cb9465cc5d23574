"""The HTTP port of a command without a status page: metrics and probes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from knowledgepulse_kafka.session import Session
from knowledgepulse_worker.http import probes
from knowledgepulse_worker.http.server import METRICS, listening, probe_response
from knowledgepulse_worker.observe.metric_registry import CommandMetrics
from knowledgepulse_worker.settings import WebSettings


@asynccontextmanager
async def serving_metrics(
    settings: WebSettings, metrics: CommandMetrics, session: Session
) -> AsyncIterator[None]:
    """Serve the port.

    Args:
        settings: the address.
        metrics: the command's metrics.
        session: the session that reads.

    Raises:
        StartError: the address is invalid or in use.
    """

    async def page(_request: web.Request) -> web.Response:
        metrics.waiting(session.waits)
        content_type, body = metrics.render()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def live(_request: web.Request) -> web.Response:
        return probe_response(*probes.live())

    async def ready(_request: web.Request) -> web.Response:
        return probe_response(*probes.ready(session.not_ready))

    app = web.Application()
    app.router.add_get(METRICS, page)
    app.router.add_get(probes.LIVE, live)
    app.router.add_get(probes.READY, ready)
    async with listening(settings, app):
        yield
