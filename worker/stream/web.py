"""Faust's web server with a limit on its connections."""

from __future__ import annotations

import asyncio
from typing import cast

from aiohttp.web import Server
from aiohttp.web_protocol import RequestHandler
from faust.web.drivers.aiohttp import Web

MAX_CONNECTIONS = 256
"""Open connections to the web port; more are closed. Each takes a descriptor, as do those to brokers."""


class BoundedWeb(Web):
    """Closes what connects beyond :data:`MAX_CONNECTIONS`; aiohttp has no setting for it."""

    async def start_server(self) -> None:
        """Listen."""
        await super().start_server()
        server = cast("Server", self._runner.server)
        accept = server.connection_made

        def connection_made(handler: RequestHandler, transport: asyncio.Transport) -> None:
            accept(handler, transport)
            if len(server.connections) > MAX_CONNECTIONS:
                transport.abort()

        server.connection_made = connection_made  # type: ignore[method-assign]
