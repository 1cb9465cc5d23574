"""The frame of a command that reads in a group: its session, and the HTTP port with metrics and probes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from aiohttp import web

from knowledgepulse_kafka.session import Session
from knowledgepulse_kafka.transactional_publisher import BATCH_BYTES
from knowledgepulse_worker.http import probes
from knowledgepulse_worker.http.server import METRICS, listening, probe_response
from knowledgepulse_worker.observe.metric_registry import CommandMetrics
from knowledgepulse_worker.settings import Settings, WebSettings


@asynccontextmanager
async def group_program(
    settings: Settings,
    metrics: CommandMetrics,
    group: str,
    topics: Sequence[str],
    *,
    batch_bytes: int = BATCH_BYTES,
) -> AsyncIterator[Session]:
    """Read topics as the only member of a group, whose name is the transactional id, too.

    Args:
        settings: the brokers, the limits and the port of the metrics.
        metrics: the command's metrics.
        group: the consumer group.
        topics: the names of the topics to read.
        batch_bytes: the size limit of a batch to publish with more than one record.

    Raises:
        StartError: the port of the metrics is in use.
        ClientError: see :meth:`Session.__aenter__`.
    """
    session = Session(
        replace(settings.kafka.client_config(), group=group),
        topics,
        group,
        decoded_bytes=settings.limits.batch_bytes,
        batch_bytes=batch_bytes,
    )
    async with session, serving_metrics(settings.web, metrics, session):
        yield session


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
