"""Applications of aiohttp on the loopback interface."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from knowledgepulse_worker.tools.demo.processes import LOOPBACK, free_ports


@asynccontextmanager
async def served(app: web.Application, port: int | None = None) -> AsyncIterator[str]:
    """Serve an application; yield its address."""
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    port = port or free_ports(1)[0]
    await web.TCPSite(runner, LOOPBACK, port).start()
    try:
        yield f"http://{LOOPBACK}:{port}"
    finally:
        await runner.cleanup()
