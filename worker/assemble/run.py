"""Assemble runs until a stop signal: the partitions of a group member, and its web port."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from schemas.convert import Options
from worker.assemble.log import AssemblyLog
from worker.assemble.outputs import RunOutputs
from worker.assemble.partition import PartitionAssembler
from worker.assemble.runs import COMPLETED_BY, OpenRuns
from worker.ending import run_in_time, within
from worker.errors import StartError, TopicError
from worker.kafka.group_reader import GroupReader
from worker.kafka.reader import TopicReader
from worker.kafka.rights import assembly_rights, require_rights
from worker.kafka.topics import Topic, TopicAdmin, assembly_group
from worker.lane.records import RawRecord
from worker.observe import probes
from worker.observe.assembly import AssemblyMetrics
from worker.settings import Settings
from worker.signals import stop_signals
from worker.web import METRICS, listening

logger = logging.getLogger(__name__)

POLL = 1.0
"""Seconds to wait for records."""
LONGEST_STEP = 5.0
"""Seconds that may pass at once for a partition without records: more have gone by while this process or the
brokers were away, and spans with them."""
STOP_LIMIT = 5.0
"""Seconds to close each connection."""
REBALANCE_MARGIN = 40.0
"""Seconds that a rebalance allows its members beyond ``limits.drain``."""


def run_assembler(settings: Settings, options: Options) -> None:
    """Assemble runs until SIGTERM, SIGHUP or SIGINT; then finish the records in hand and leave the group.

    Args:
        settings: the effective settings.
        options: trace fields that spans do not have.

    Raises:
        StartError: the configuration prevents the start.
        WorkerError: a fatal error; a new process continues after the last transaction.
    """
    run_in_time(_work(settings, options))


async def _work(settings: Settings, options: Options) -> None:
    stop = asyncio.Event()
    for number in (*stop_signals(), signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    topics = await _require_topics(settings)
    metrics = AssemblyMetrics(COMPLETED_BY)
    assembler = Assembler(settings, topics, RunOutputs(settings, options, topics), metrics)
    async with _serving(settings, metrics, assembler):
        where = f"http://{settings.web.host}:{settings.web.port}{METRICS}"
        logger.info(
            "assembling %s into %s; metrics at %s", settings.assemble.spans, settings.topics.raw, where
        )
        working = asyncio.create_task(assembler.work(stop.is_set))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if stop.is_set():
            logger.info("stopping")
        await within(settings.limits.drain, lambda: working)


async def _require_topics(settings: Settings) -> dict[str, Topic]:
    await require_rights(settings.kafka, assembly_rights(settings))
    try:
        async with TopicAdmin(settings.kafka, settings.topics) as admin:
            return await admin.require_for_assembly(settings.assemble)
    except TopicError as error:
        raise StartError(str(error)) from error


@asynccontextmanager
async def _serving(settings: Settings, metrics: AssemblyMetrics, assembler: Assembler) -> AsyncIterator[None]:
    """Serve metrics and probes."""

    async def page(_request: web.Request) -> web.Response:
        content_type, body = metrics.render()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def live(_request: web.Request) -> web.Response:
        status, body = probes.live()
        return web.Response(status=status, body=body, headers=probes.HEADERS)

    async def ready(_request: web.Request) -> web.Response:
        status, body = probes.ready(assembler.not_ready)
        return web.Response(status=status, body=body, headers=probes.HEADERS)

    app = web.Application()
    app.router.add_get(METRICS, page)
    app.router.add_get(probes.LIVE, live)
    app.router.add_get(probes.READY, ready)
    async with listening(settings.web, app):
        yield


@dataclass
class _Partition:
    """An assigned partition.

    Attributes:
        resources: closes its connections.
        assembler: assembles its runs.
        seen: the monotonic time when it last had records, or was known to have none.
    """

    resources: AsyncExitStack
    assembler: PartitionAssembler
    seen: float


class Assembler:
    """Assembles the runs of the partitions that the group assigns to this process.

    Args:
        settings: the effective settings.
        topics: the topics by name.
        outputs: builds the records to publish.
        metrics: counts.
    """

    def __init__(
        self, settings: Settings, topics: Mapping[str, Topic], outputs: RunOutputs, metrics: AssemblyMetrics
    ) -> None:
        self.not_ready = ["partitions are not assigned yet"]
        self._settings = settings
        self._largest = max(topic.max_message_bytes for topic in topics.values())
        self._outputs = outputs
        self._metrics = metrics
        self._partitions: dict[int, _Partition] = {}
        self._turn = asyncio.Lock()  # a rebalance waits for the turn's transactions

    async def work(self, is_stopping: Callable[[], bool]) -> None:
        """Read and publish until told to stop.

        Raises:
            WorkerError: a fatal error.
        """
        settings = self._settings
        kafka = settings.kafka.model_copy(update={"group": assembly_group(settings.kafka.group)})
        rebalance_timeout = settings.limits.drain + REBALANCE_MARGIN
        batch_bytes = settings.limits.batch_bytes
        try:
            async with GroupReader(
                kafka, settings.assemble.spans, batch_bytes, rebalance_timeout, self._leave
            ) as reader:
                while not is_stopping():
                    async with self._turn:
                        await self._open_assigned(reader)
                    records = await reader.poll(POLL)
                    async with self._turn:
                        await self._process(reader, records)
        finally:
            await self._close_all()

    async def _open_assigned(self, reader: GroupReader) -> None:
        for partition in sorted(reader.assigned - self._partitions.keys()):
            self._partitions[partition] = await self._open(partition, reader)
            self.not_ready = []
        self._metrics.partitions.set(len(self._partitions))

    async def _open(self, partition: int, reader: GroupReader) -> _Partition:
        """Fence off the partition's former owner, and continue after its last transaction."""
        settings = self._settings
        async with AsyncExitStack() as stack:
            log = AssemblyLog(settings, partition, self._largest)
            await log.__aenter__()
            stack.push_async_callback(within, STOP_LIMIT, partial(log.__aexit__, None, None, None))
            async with TopicReader(settings.kafka, settings.limits.batch_bytes) as topic_reader:
                state = await log.read(topic_reader)
            offsets = await reader.bounds(partition)
            watermark = await reader.committed(partition) or offsets.start
            start, resume = watermark, state.position
            if resume > offsets.stop or watermark > offsets.stop:
                logger.warning(
                    "partition %d has fewer records than were read; reading all of them", partition
                )
                start, resume = offsets.start, offsets.start
            elif watermark < offsets.start:
                logger.warning(
                    "partition %d: offsets %d to %d were deleted before their runs were complete",
                    *(partition, watermark, offsets.start - 1),
                )
                start = offsets.start
            reader.seek(partition, start)
            logger.info("partition %d: reading from offset %d", partition, start)
            runs = OpenRuns(settings.assemble, start, resume, state.published)
            assembler = PartitionAssembler(partition, runs, self._outputs, log.publish, self._metrics)
            return _Partition(stack.pop_all(), assembler, time.monotonic())

    async def _process(self, reader: GroupReader, records: Mapping[int, list[RawRecord]]) -> None:
        for number, batch in records.items():
            # Not yet opened ones were assigned during the poll, and will be read from their watermark.
            if partition := self._partitions.get(number):
                await partition.assembler.process(batch)
                partition.seen = time.monotonic()
        quiet = {
            number
            for number, partition in self._partitions.items()
            if number not in records and partition.assembler.has_open_runs
        }
        at_end = await reader.read_to_end(quiet) if quiet else set()
        for number in quiet:
            partition, now = self._partitions[number], time.monotonic()
            if number in at_end:
                await partition.assembler.wait(min(now - partition.seen, LONGEST_STEP))
            partition.seen = now

    async def _leave(self) -> None:
        async with self._turn:
            await self._close_all()

    async def _close_all(self) -> None:
        while self._partitions:
            number, partition = self._partitions.popitem()
            await partition.resources.aclose()
            self._metrics.partition_left(number)
