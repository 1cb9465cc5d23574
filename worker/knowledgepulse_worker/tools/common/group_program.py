"""The frame of a command that reads in a group: its session, and the HTTP port with metrics and probes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from html import escape
from uuid import uuid4

from aiohttp import web

from knowledgepulse_kafka.session import Rebalances, Session
from knowledgepulse_kafka.throttle import Throttles
from knowledgepulse_kafka.transactional_publisher import BATCH_BYTES
from knowledgepulse_worker.http import probes
from knowledgepulse_worker.http.pages import TEXT_PAGE_HEADERS
from knowledgepulse_worker.http.server import METRICS, STATUS, listening, probe_response
from knowledgepulse_worker.observe.metric_registry import CommandMetrics
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.stream.checks import repeat
from knowledgepulse_worker.tools.common.session_diagnosis import OBSERVE_INTERVAL, SessionDiagnosis
from knowledgepulse_worker.verdict import ShownVerdict


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
    throttles = Throttles()
    session = Session(
        replace(settings.kafka.client_config(), group=group),
        topics,
        group if rebalances is None else f"{group}-{uuid4().hex}",
        decoded_bytes=settings.limits.batch_bytes,
        batch_bytes=batch_bytes,
        rebalance_timeout=settings.limits.rebalance,
        rebalances=rebalances,
        throttles=throttles,
        granted=None if rebalances is None else f"{group}-*",
    )
    diagnosis = SessionDiagnosis(session, throttles, settings.kafka.session_timeout)
    async with session, listening(settings.web, _pages(metrics, diagnosis, settings.web.runbook)):
        observing = asyncio.create_task(repeat(diagnosis.observe, OBSERVE_INTERVAL))
        try:
            yield session
        finally:
            observing.cancel()


def _pages(metrics: CommandMetrics, diagnosis: SessionDiagnosis, runbook: str | None) -> web.Application:
    """Return the metrics, the probes and the status of a program."""

    async def status(_request: web.Request) -> web.Response:
        await diagnosis.observe()
        return web.Response(body=_status_page(diagnosis.verdict.shown(runbook)), headers=TEXT_PAGE_HEADERS)

    async def page(_request: web.Request) -> web.Response:
        metrics.waiting(diagnosis.waits())
        content_type, body = metrics.render()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def live(_request: web.Request) -> web.Response:
        return probe_response(*probes.live())

    async def ready(_request: web.Request) -> web.Response:
        await diagnosis.observe()
        return probe_response(
            *probes.ready(diagnosis.session.not_ready, verdict=diagnosis.verdict.as_dict(runbook))
        )

    app = web.Application()
    app.router.add_get(STATUS, status)
    app.router.add_get(METRICS, page)
    app.router.add_get(probes.LIVE, live)
    app.router.add_get(probes.READY, ready)
    return app


def _status_page(verdict: ShownVerdict) -> bytes:
    """Return a page with what is found about the program."""
    lines = (f"<li>{escape(finding.text)}</li>" for finding in (verdict, *verdict.others))
    title = "knowledgepulse-worker"
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n<h1>{title}</h1>\n'
        f"<ul>{''.join(lines)}</ul>\n"
        f'<p><a href="{probes.READY}">{probes.READY}</a> <a href="{METRICS}">{METRICS}</a></p>\n</html>\n'
    ).encode()
