"""The worker's HTTP port, which the parent process serves for as long as it runs.

The parent answers the probes itself, from the child's heartbeat. For the pages, it is a proxy to the child
through a Unix socket.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any, cast

import aiohttp
from aiohttp import web

from knowledgepulse_worker.errors import StartError
from knowledgepulse_worker.http import probes
from knowledgepulse_worker.http.verdict import State, Verdict
from knowledgepulse_worker.settings import WebSettings

logger = logging.getLogger(__name__)

STATUS, STATUS_DATA, METRICS = "/", "/api/status", "/metrics"
"""The child's pages."""

MAX_CONNECTIONS = 256
"""Maximum number of open connections, since starting the child needs descriptors, too.

A further connection closes the oldest.
"""

REPORT_INTERVAL = 60.0
"""Seconds between two warnings that there are too many connections."""

IDLE_LIMIT = 10.0
"""Seconds for a connection to send a request."""

ANSWER_LIMIT = 10.0
"""Seconds for the child to answer a request."""

SHUTDOWN_LIMIT = 0.1
"""Seconds for open requests at shutdown; aiohttp treats 0 as no limit."""

_REQUEST_HEADERS = ("Accept", "Host")
"""Request headers that the pages depend on."""

_CONNECTION_HEADERS = ("Connection", "Content-Length", "Date", "Server", "Transfer-Encoding")
"""Response headers that aiohttp writes itself."""


class Port:
    """The handlers of the port.

    Args:
        child: a session connected to the child's socket.
    """

    def __init__(self, child: aiohttp.ClientSession) -> None:
        self._child = child
        self._verdict: Mapping[str, Any] = {}
        self.without_child(State.STARTING, "the worker is starting")

    def without_child(self, state: State, why: str, *, ready: bool = False) -> None:
        """Answer for a child that is starting, stopping or gone.

        Args:
            state: the worker's state.
            why: the reason, shown in responses.
            ready: whether the worker counts as ready nevertheless.
        """
        self._why = why
        self._reasons: Sequence[str] = [] if ready else [why]
        since = self._verdict["since"] if self._verdict.get("state") == state else time.time()
        self._verdict = Verdict(state, why, since).as_dict()

    def with_child(self, reasons: Sequence[str], verdict: Mapping[str, Any]) -> None:
        """Answer for a running child.

        Args:
            reasons: the reasons why the child is not ready; empty if it is.
            verdict: the child's verdict on its own state.
        """
        self._why = "; ".join(reasons) or "the worker does not answer"
        self._reasons = reasons
        self._verdict = verdict

    async def live(self, _request: web.Request) -> web.Response:
        """Answer :data:`knowledgepulse_worker.http.probes.LIVE`."""
        return probe_response(*probes.live())

    async def ready(self, _request: web.Request) -> web.Response:
        """Answer :data:`knowledgepulse_worker.http.probes.READY`."""
        return probe_response(*probes.ready(self._reasons, verdict=self._verdict))

    async def page(self, request: web.Request) -> web.Response:
        """Return the child's response, or 503 with the reason why there is none."""
        # Non-ASCII bytes match nothing that the child knows and could not be forwarded.
        headers = {
            name: request.headers.get(name, "").encode("ascii", "replace").decode()
            for name in _REQUEST_HEADERS
        }
        try:
            async with self._child.get(f"http://worker{request.path}", headers=headers) as answer:
                headers = {
                    name: value for name, value in answer.headers.items() if name not in _CONNECTION_HEADERS
                }
                return web.Response(status=answer.status, body=await answer.read(), headers=headers)
        except (aiohttp.ClientError, TimeoutError):
            if request.path == STATUS_DATA:  # an open page then shows the verdict above its last data
                return web.json_response({"verdict": self._verdict}, status=HTTPStatus.SERVICE_UNAVAILABLE)
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=f"{self._why}\n")


def probe_response(status: HTTPStatus, body: bytes) -> web.Response:
    """Return the response to a probe."""
    return web.Response(status=status, body=body, headers=probes.HEADERS)


@asynccontextmanager
async def serving(settings: WebSettings, socket: str) -> AsyncIterator[Port]:
    """Serve the port.

    Args:
        settings: the address.
        socket: the child's socket, from :func:`socket_name`.

    Raises:
        StartError: the address is invalid or in use.
    """
    child = aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(socket_address(socket)), timeout=aiohttp.ClientTimeout(ANSWER_LIMIT)
    )
    async with child:
        port = Port(child)
        app = web.Application()
        app.router.add_get(probes.LIVE, port.live)
        app.router.add_get(probes.READY, port.ready)
        for path in (STATUS, STATUS_DATA, METRICS):
            app.router.add_get(path, port.page)
        async with listening(settings, app):
            yield port


@asynccontextmanager
async def listening(
    settings: WebSettings, app: web.Application, names: str = "web.host, web.port"
) -> AsyncIterator[None]:
    """Serve an application at the port.

    Args:
        settings: the address.
        app: the application.
        names: the settings or options that the address comes from, for errors.

    Raises:
        StartError: the address is invalid or in use.
    """
    runner = web.AppRunner(
        app, access_log=None, keepalive_timeout=IDLE_LIMIT, shutdown_timeout=SHUTDOWN_LIMIT
    )
    await runner.setup()
    _limit_connections(runner)
    try:
        try:
            await web.TCPSite(runner, settings.host, settings.port).start()
        except OSError as error:
            where = f"{settings.host}:{settings.port}"
            raise StartError(f"{names}: {where}: {error.strerror}") from error
        yield
    finally:
        await runner.cleanup()


def _limit_connections(runner: web.AppRunner) -> None:
    """Close the oldest connections beyond :data:`MAX_CONNECTIONS`; aiohttp has no setting for this.

    A probe opens a new connection and is answered at once, however many slow clients are connected.
    """
    server = cast("web.Server", runner.server)
    made, lost = server.connection_made, server.connection_lost
    transports: dict[web.RequestHandler, asyncio.Transport] = {}  # in the order of opening
    loop = asyncio.get_running_loop()
    reported = float("-inf")

    def connection_made(handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        nonlocal reported
        made(handler, transport)
        transports[handler] = transport
        if len(transports) > MAX_CONNECTIONS:
            transports.pop(next(iter(transports))).abort()
            if loop.time() - reported >= REPORT_INTERVAL:
                reported = loop.time()
                logger.warning(
                    "more than %d connections to the web port; closing the oldest", MAX_CONNECTIONS
                )

    def connection_lost(handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        transports.pop(handler, None)
        lost(handler, exc)

    server.connection_made = connection_made  # type: ignore[method-assign]
    server.connection_lost = connection_lost  # type: ignore[method-assign]


@contextmanager
def socket_name() -> Iterator[str]:
    """Yield a unique name for a Unix socket.

    On Linux it names an abstract socket, written with a leading ``@``, which needs no file system and leaves
    nothing behind when the process is killed. Elsewhere it is a path in a private folder.
    """
    if sys.platform == "linux":
        yield f"@kp-worker-{token_hex(16)}"
    else:
        with TemporaryDirectory(
            prefix="kp-", dir="/tmp"
        ) as folder:  # TMPDIR may be too long for a socket's path
            yield f"{folder}/web"


def socket_address(name: str) -> str:
    """Return the operating system's address of a socket; a leading ``@`` marks an abstract socket."""
    return f"\0{name[1:]}" if name.startswith("@") else name
