"""The frame of a command that reads in a group: its session, and the HTTP port with metrics and probes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import uuid4

from aiohttp import web

from knowledgepulse_kafka.session import Rebalances, Session
from knowledgepulse_kafka.transactional_publisher import BATCH_BYTES
from knowledgepulse_worker.http import probes
from knowledgepulse_worker.http.server import METRICS, listening, probe_response
from knowledgepulse_worker.observe.metric_registry import CommandMetrics
from knowledgepulse_worker.settings import Settings


@asynccontextmanager
async def group_program(
    settings: Settings,
    metrics: CommandMetrics,
    group: str,
    topics: Sequence[str],
    *,
    batch_bytes: int = BATCH_BYTES,
    rebalances: Rebalances | None = None,
) -> AsyncIterator[Session]:
    """Read topics as a member of a group.

    A program whose group has a single member has the group's name as its transactional id, so that the next
    one stops it. Each process of others has one of its own, which begins with that name.

    Args:
        settings: the brokers, the limits and the port of the metrics.
        metrics: the command's metrics.
        group: the consumer group.
        topics: the names of the topics to read.
        batch_bytes: the size limit of a batch to publish with more than one record.
        rebalances: what a member does at rebalances; None for a group with a single member.

    Raises:
        StartError: the port of the metrics is in use.
        ClientError: see :meth:`Session.__aenter__`.
    """
    session = Session(
        replace(settings.kafka.client_config(), group=group),
        topics,
        group if rebalances is None else f"{group}-{uuid4().hex}",
        decoded_bytes=settings.limits.batch_bytes,
        batch_bytes=batch_bytes,
        rebalance_timeout=settings.limits.rebalance,
        rebalances=rebalances,
        granted=None if rebalances is None else f"{group}-*",
    )
    async with session, listening(settings.web, _pages(metrics, session)):
        yield session


def _pages(metrics: CommandMetrics, session: Session) -> web.Application:
    """Return the metrics and the probes of a program."""

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
    return app
