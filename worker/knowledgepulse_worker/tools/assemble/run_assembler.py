"""Assemble runs until a stop signal: checks at the start, connections, and the web port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from knowledgepulse_convert import Options
from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.session import Rebalances, Session
from knowledgepulse_worker.errors import StartError
from knowledgepulse_worker.http.server import METRICS
from knowledgepulse_worker.kafka.topic_admin import permitted_admin
from knowledgepulse_worker.process.signals import until_stopped
from knowledgepulse_worker.settings import Settings
from knowledgepulse_worker.shutdown import run_in_time
from knowledgepulse_worker.tools.assemble.assembler import Assembler
from knowledgepulse_worker.tools.assemble.assembly_metrics import AssemblyMetrics
from knowledgepulse_worker.tools.assemble.assembly_topics import (
    assembly_group,
    assembly_rights,
    require_topics,
)
from knowledgepulse_worker.tools.assemble.run_conversion import RunConversion
from knowledgepulse_worker.tools.assemble.run_outputs import RunOutputs
from knowledgepulse_worker.tools.assemble.transaction_log import STEP_BYTES, AssemblyLog
from knowledgepulse_worker.tools.common.group_program import group_program

logger = logging.getLogger(__name__)


def run_assembler(settings: Settings, options: Options) -> None:
    """Assemble runs until SIGTERM, SIGHUP or SIGINT; then finish the records in hand and leave the group.

    Raises:
        StartError: the configuration prevents the start.
        WorkerError: a fatal error; a new process continues after the last transaction.
    """
    run_in_time(until_stopped(partial(_work, settings, options)))


async def _work(settings: Settings, options: Options, stop: asyncio.Event) -> None:
    try:
        async with permitted_admin(settings, assembly_rights(settings)) as admin:
            topics = await require_topics(admin, settings)
    except TopicError as error:
        raise StartError(str(error)) from error
    metrics = AssemblyMetrics(group=settings.kafka.group)
    batch_bytes = min(STEP_BYTES, *(topic.max_message_bytes for topic in topics.values()))
    async with RunConversion(options) as conversion:
        assembler = Assembler(
            settings.assemble,
            partial(_joined, settings, batch_bytes, metrics),
            partial(AssemblyLog, settings),
            conversion.convert,
            RunOutputs(settings, topics),
            metrics,
        )
        await assembler.work_until(stop, settings.limits.drain)


@asynccontextmanager
async def _joined(
    settings: Settings, batch_bytes: int, metrics: AssemblyMetrics, rebalances: Rebalances
) -> AsyncIterator[Session]:
    group, spans = assembly_group(settings.kafka.group), settings.assemble.spans
    program = group_program(settings, metrics, group, [spans], batch_bytes=batch_bytes, rebalances=rebalances)
    async with program as session:
        where = f"http://{settings.web.host}:{settings.web.port}{METRICS}"
        logger.info("assembling %s into %s; metrics at %s", spans, settings.topics.raw, where)
        yield session
