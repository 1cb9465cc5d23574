"""The worker's HTTP port, which the parent process serves for as long as it runs.

The parent answers the probes and serves the status page itself, whatever happens to the child. It asks the
child for metrics and for the page's data, at most once a second for each kind, so that readers of the port
cannot slow the scoring. It asks for the data now and then even if nobody reads it: what
the page shows survives the child.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, NamedTuple, cast

import aiohttp
import msgspec
from aiohttp import web, web_response

from knowledgepulse_worker.errors import StartError
from knowledgepulse_worker.http import probes
from knowledgepulse_worker.http.child_connections import ChildConnector
from knowledgepulse_worker.http.pages import (
    DATA_HEADERS,
    PAGE,
    PAGE_HEADERS,
    RESTRICTIONS,
    shows_content,
)
from knowledgepulse_worker.http.unreadable_requests import requests
from knowledgepulse_worker.settings import WebSettings
from knowledgepulse_worker.verdict import STATE_HELP, Finding, State, Verdict

logger = logging.getLogger(__name__)

STATUS, STATUS_DATA, METRICS = "/", "/api/status", "/metrics"
"""The pages; the child makes the last two."""

CONTENT = "Kp-Content"
"""The header with which the parent asks for trace content, too."""

RENDER_INTERVAL = 1.0
"""Seconds between two requests to the child for the same."""

KEEP_INTERVAL = 10.0
"""Seconds between two requests for the page's data while nobody looks."""

_OPENMETRICS = "application/openmetrics-text"

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

SERVER = "kp-worker"
"""What responses name as their server, instead of the versions of what serves them."""

SHUTDOWN_LIMIT = 0.1
"""Seconds for open requests at shutdown; aiohttp treats 0 as no limit."""

_CONNECTION_HEADERS = ("Connection", "Content-Length", "Date", "Server", "Transfer-Encoding")
"""Response headers that aiohttp writes itself."""


class WantedPage(NamedTuple):
    """What a request asks the child for.

    Attributes:
        path: the page.
        content: whether with trace content.
        openmetrics: whether metrics are wanted in OpenMetrics.
    """

    path: str
    content: bool
    openmetrics: bool

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the request to the child."""
        accept = {"Accept": _OPENMETRICS if self.openmetrics else "*/*"}
        return accept | ({CONTENT: "shown"} if self.content else {})


class ChildAnswer(NamedTuple):
    """The child's answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Port:
    """The handlers of the port.

    Args:
        settings: who may see content, and the address of the runbook.
        group: the consumer group, a label of the metrics.
        connector: connects to the child.
    """

    def __init__(self, settings: WebSettings, group: str, connector: ChildConnector) -> None:
        self._settings = settings
        self._group = group
        self._connector = connector
        self._child = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(ANSWER_LIMIT))
        self._answers: dict[WantedPage, asyncio.Task[ChildAnswer | None]] = {}
        self._turns: defaultdict[WantedPage, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._asked: dict[WantedPage, float] = {}
        self._asking: set[asyncio.Task[ChildAnswer | None]] = set()
        self._verdict = Verdict.of(())
        self._child_verdict = self._verdict
        self._refusal: tuple[Finding, ...] = ()
        self._latest: dict[bool, bytes] = {}
        self._has_child = False
        self.without_child(State.STARTING, "the worker is starting")

    def socket_of_next_child(self) -> socket.socket:
        """See :meth:`~knowledgepulse_worker.http.child_connections.ChildConnector.socket_of_next_child`."""
        return self._connector.socket_of_next_child()

    def without_child(self, state: State, why: str, *, ready: bool = False) -> None:
        """Answer for a child that is starting, stopping or gone.

        Args:
            state: the worker's state.
            why: the reason, shown in responses.
            ready: whether the worker counts as ready nevertheless.
        """
        self._has_child = False
        self._reasons: Sequence[str] = [] if ready else [why]
        since = self._verdict.since(state)
        found = Finding(state, why, time.time() if since is None else since)
        if state is State.REFUSED:
            self._refusal = (found,)
        self._verdict = Verdict.of([found], self.lasting_findings)

    def with_child(self, reasons: Sequence[str], findings: Sequence[Mapping[str, Any]]) -> None:
        """Answer for a running child.

        Args:
            reasons: the reasons why the child is not ready; empty if it is.
            findings: the findings of the child's verdict on itself, as plain JSON.
        """
        self._has_child = True
        self._reasons = reasons
        if not reasons:
            self._refusal = ()
        self._verdict = self._child_verdict = Verdict(msgspec.convert(findings, tuple[Finding, ...]))

    @property
    def lasting_findings(self) -> tuple[Finding, ...]:
        """What was found and may still be true when the last child is gone.

        What refused a start is shown until a child is ready.
        """
        lasting = self._child_verdict.lasting
        return (*self._refusal, *(finding for finding in lasting if finding.state is not State.REFUSED))

    @property
    def _shown_verdict(self) -> dict[str, Any]:
        return self._verdict.as_dict(self._settings.runbook)

    async def live(self, _request: web.Request) -> web.Response:
        """Answer :data:`knowledgepulse_worker.http.probes.LIVE`."""
        return probe_response(*probes.live())

    async def ready(self, _request: web.Request) -> web.Response:
        """Answer :data:`knowledgepulse_worker.http.probes.READY`."""
        return probe_response(*probes.ready(self._reasons, verdict=self._shown_verdict))

    async def page(self, _request: web.Request) -> web.Response:
        """Answer :data:`STATUS`."""
        return web.Response(body=PAGE, headers=PAGE_HEADERS)

    async def data(self, request: web.Request) -> web.Response:
        """Answer :data:`STATUS_DATA`; without the child, 503 with the verdict and what it answered last."""
        wanted = self._wanted(request)
        if (answer := await self._answer(wanted)) is not None:
            return _response(answer)
        shown = json.loads(self._latest.get(wanted.content, b"{}")) | {"verdict": self._shown_verdict}
        return web.Response(
            status=HTTPStatus.SERVICE_UNAVAILABLE, body=json.dumps(shown).encode(), headers=DATA_HEADERS
        )

    async def keep_data(self) -> None:
        """Ask the child for the page's data now and then."""
        # What a browser on this machine may see, and what one elsewhere.
        contents = {shows_content(self._settings, request) for request in ({"Host": "localhost"}, {})}
        while True:
            await asyncio.sleep(KEEP_INTERVAL)
            for content in contents:
                await self._answer(WantedPage(STATUS_DATA, content, openmetrics=False))

    async def metrics(self, request: web.Request) -> web.Response:
        """Answer :data:`METRICS`; without the child, only with the metric of the worker's states."""
        answer = await self._answer(self._wanted(request))
        if answer is None:
            return web.Response(
                text=_state_metric(self._verdict.states, self._group), headers=_METRICS_HEADERS
            )
        return _response(answer)

    def _wanted(self, request: web.Request) -> WantedPage:
        content = shows_content(self._settings, request.headers, request.version)
        openmetrics = request.path == METRICS and _OPENMETRICS in request.headers.get("Accept", "")
        return WantedPage(request.path, content, openmetrics)

    async def _answer(self, wanted: WantedPage) -> ChildAnswer | None:
        """Return an answer of the child that was requested after this call; None if there is none."""
        if not self._has_child:
            return None
        asking = self._answers.get(wanted)
        if asking is None:
            asking = self._answers[wanted] = asyncio.create_task(self._ask(wanted))
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)
        return await asyncio.shield(asking)

    async def _ask(self, wanted: WantedPage) -> ChildAnswer | None:
        """Ask the child, once its last answer is there and the interval is over."""
        loop = asyncio.get_running_loop()
        async with self._turns[wanted]:
            await asyncio.sleep(self._asked.get(wanted, -RENDER_INTERVAL) + RENDER_INTERVAL - loop.time())
            self._asked[wanted] = loop.time()
            del self._answers[wanted]  # whoever comes now gets a later answer
            try:
                async with self._child.get(f"http://worker{wanted.path}", headers=wanted.headers) as answer:
                    headers = {
                        name: value
                        for name, value in answer.headers.items()
                        if name not in _CONNECTION_HEADERS
                    }
                    body = await answer.read()
            except (aiohttp.ClientError, TimeoutError):
                return None
        if wanted.path == STATUS_DATA and answer.status == HTTPStatus.OK:
            self._latest[wanted.content] = body
        return ChildAnswer(answer.status, headers, body)

    async def close(self) -> None:
        """Ask for nothing more."""
        for asking in list(self._asking):
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
        await self._child.close()


def _response(answer: ChildAnswer) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)


_METRICS_HEADERS = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}


def _state_metric(states: Collection[State], group: str) -> str:
    """Return the metric ``kp_state`` in Prometheus's text format, as the child gives it."""
    lines = [f"# HELP kp_state {STATE_HELP}", "# TYPE kp_state gauge"]
    escaped = group.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    lines += [
        f'kp_state{{state="{possible}",group="{escaped}"}} {float(possible in states)}' for possible in State
    ]
    return "\n".join(lines) + "\n"


def probe_response(status: HTTPStatus, body: bytes) -> web.Response:
    """Return the response to a probe."""
    return web.Response(status=status, body=body, headers=probes.HEADERS)


@asynccontextmanager
async def serving(settings: WebSettings, group: str) -> AsyncIterator[Port]:
    """Serve the port.

    Args:
        settings: the address.
        group: the consumer group, a label of the metrics.

    Raises:
        StartError: the address is invalid or in use.
    """
    port = Port(settings, group, ChildConnector())
    app = web.Application()
    app.router.add_get(probes.LIVE, port.live)
    app.router.add_get(probes.READY, port.ready)
    app.router.add_get(STATUS, port.page)
    app.router.add_get(STATUS_DATA, port.data)
    app.router.add_get(METRICS, port.metrics)
    keeping = asyncio.create_task(port.keep_data())
    try:
        async with listening(settings, app):
            yield port
    finally:
        keeping.cancel()
        await port.close()


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
    app.on_response_prepare.append(_restrict)
    # Also of what aiohttp answers by itself, such as 400, for which it has no setting.
    web_response.SERVER_SOFTWARE = SERVER  # type: ignore[attr-defined]
    runner = web.AppRunner(
        app,
        logger=requests,
        access_log=None,
        auto_decompress=False,  # no page reads a compressed body
        keepalive_timeout=IDLE_LIMIT,
        shutdown_timeout=SHUTDOWN_LIMIT,
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


async def _restrict(_request: web.Request, response: web.StreamResponse) -> None:
    """Have no response kept or taken for another type."""
    for name, value in RESTRICTIONS.items():
        response.headers.setdefault(name, value)


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
