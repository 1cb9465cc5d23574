"""Answers in the worker's place while there is no worker's process: the broker is away, say."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

from worker.observe import probes
from worker.settings import WebSettings

logger = logging.getLogger(__name__)


@asynccontextmanager
async def standing_in(settings: WebSettings, why: str, *, ready: bool) -> AsyncIterator[None]:
    """Serve the probes on the worker's port; every other page says why there is no worker.

    Args:
        settings: where.
        why: there is none.
        ready: whether the worker has been ready before.
    """

    async def answer(request: web.Request) -> web.Response:
        if request.path == probes.LIVE:
            status, body = probes.live()
        elif request.path == probes.READY:
            status, body = probes.ready([] if ready else [why])
        else:
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=f"{why}\n")
        return web.Response(status=status, body=body, headers=probes.HEADERS)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.host, settings.port).start()
    except OSError as error:
        logger.warning("web.host, web.port: %s:%d: %s", settings.host, settings.port, error.strerror)
    try:
        yield
    finally:
        await runner.cleanup()
