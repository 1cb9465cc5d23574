"""Faust's consumer, with commits that follow the lanes' watermarks instead of Faust's acks.

Faust 0.15's ack bookkeeping cannot say "published and confirmed": an actor that restarts never sees its
in-flight records again, gaps of transaction markers and compaction hold commits up, and on revoke it is
dropped before anyone is asked. So acks are ignored here, and the lanes are asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, ClassVar, cast

import aiokafka
from faust.transport.consumer import RecordMap
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, AppT, Message
from faust.types.transports import ConsumerCallback, ConsumerT, TPorTopicSet
from mode import Service
from yarl import URL

from worker.observe.metrics import Metrics
from worker.stream.lanes import Lanes

# Seconds that one fetch waits for records; positions can't be put right meanwhile.
FETCH_WAIT = 0.2


class WatermarkConsumer(driver.Consumer):
    """Commits what the lanes have finished; reads committed records only."""

    lanes: Lanes
    metrics: Metrics
    raw_topic: str
    _resumed: set[TP]
    _positions: asyncio.Lock

    def attach(self, lanes: Lanes, metrics: Metrics, raw_topic: str) -> None:
        """Say whose watermarks are committed, who is told, and for which topic."""
        self.lanes, self.metrics, self.raw_topic = lanes, metrics, raw_topic
        self._resumed = set()
        self._positions = asyncio.Lock()

    def _new_consumer_thread(self) -> driver.AIOKafkaConsumerThread:
        return _ReadCommittedThread(self, loop=self.loop, beacon=self.beacon)

    def ack(self, message: Message) -> bool:
        """Let the message go; the lanes know what is finished."""
        message.acked = True
        self._unacked_messages.discard(message)
        return True

    async def _getmany(
        self,
        active_partitions: set[TP] | None,
        timeout: float,  # noqa: ASYNC109 - Faust's
    ) -> RecordMap:
        """Fetch from what is active as the fetch begins, and never while positions are put right.

        Faust hands on its own set, which changes while the fetch waits. Once that is empty, aiokafka takes it
        for all partitions, and a record that Faust has paused is fetched, dropped, and never seen again.
        """
        async with self._positions:
            if not active_partitions:
                return {}
            return await super()._getmany(set(active_partitions), min(timeout, FETCH_WAIT))

    async def perform_seek(self) -> None:
        """Go to what is committed, once no fetch is under way whose records would be from elsewhere."""
        async with self._positions:
            await super().perform_seek()

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """Go to these offsets, likewise."""
        async with self._positions:
            await super().seek_wait(partitions)

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Message]]:  # noqa: ASYNC109 - Faust's
        """Fetch, and follow a partition that goes back, whose records Faust would drop silently."""
        async for tp, message in super().getmany(timeout):
            read = self._read_offset[tp]
            if read is not None and message.offset < read:
                self._read_offset[tp] = message.offset
            yield tp, message

    def _set_active_tps(self, tps: set[TP]) -> set[TP]:
        """Keep the raw topic out: Faust would fetch it from its assignment until it pauses it."""
        return super()._set_active_tps({tp for tp in tps if tp.topic != self.raw_topic})

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """Let the raw topic wait for :meth:`resume_flow`.

        Faust resumes partitions after recovery, then seeks to what is committed and clears its buffers: what
        it has fetched by then would come twice, or never.
        """
        raw = {tp for tp in tps if tp.topic == self.raw_topic}
        self._resumed |= raw
        super().resume_partitions(set(tps) - raw)

    def pause_partitions(self, tps: Iterable[TP]) -> None:
        """Pause, also what is about to be resumed."""
        paused = set(tps)
        self._resumed -= paused
        super().pause_partitions(paused)

    def resume_flow(self) -> None:
        """Begin to fetch, now that positions and buffers are right."""
        super().resume_flow()
        resumed, self._resumed = self._resumed, set()
        super().resume_partitions(resumed)

    def on_buffer_drop(self, tp: TP) -> None:
        """Leave a paused partition alone: Faust would fetch it before its ledger is recovered."""
        if tp in self._paused_partitions:
            self._buffered_partitions.discard(tp)
        else:
            super().on_buffer_drop(tp)

    async def force_commit(
        self,
        topics: TPorTopicSet | None = None,
        start_new_transaction: bool = True,
    ) -> bool:
        """Commit every lane's watermark that has moved."""
        marks = {TP(self.raw_topic, partition): mark for partition, mark in self.lanes.watermarks().items()}
        offsets = {tp: mark for tp, mark in marks.items() if mark != self._committed_offset[tp]}
        if not offsets or not await self._commit(offsets):
            return False
        self._committed_offset.update(offsets)
        self.lanes.committed({tp.partition: mark for tp, mark in offsets.items()})
        now = time.time()
        for tp in offsets:
            self.metrics.committed(tp.partition, now)
        return True

    @Service.task
    async def _commit_on_demand(self) -> None:
        while not self.should_stop:
            await self.wait(self.lanes.commit_wanted)  # type: ignore[arg-type]  # mode waits on asyncio's too
            self.lanes.commit_wanted.clear()
            await self.commit()

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Finish and commit before anything is taken away; called for all partitions at every rebalance."""
        await self._finish()
        await super().on_partitions_revoked(revoked)

    async def on_stop(self) -> None:
        """Finish and commit before the connection closes."""
        await self._finish()
        await super().on_stop()

    async def _finish(self) -> None:
        try:
            await self.lanes.drain()
        except ExceptionGroup as error:
            # Left alone, the client library would log it and go on with the rebalance.
            await self.crash(error)
        # One that is under way may have begun before the last records were finished.
        await self.maybe_wait_for_commit_to_finish()
        await self.commit()

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Ignore gaps: the watermark steps over them, however wide."""


class _ReadCommittedThread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: driver.Transport) -> aiokafka.AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        # Faust fixes read_uncommitted unless it runs transactions itself, and has no setting for it; the
        # fetcher takes this attribute when the consumer starts.
        consumer._isolation_level = "read_committed"  # noqa: SLF001
        return consumer


class WatermarkTransport(driver.Transport):
    """Faust's Kafka transport with :class:`WatermarkConsumer`.

    Args:
        url: the brokers, as Faust takes them.
        app: the Faust app.
        lanes: whose watermarks are committed.
        metrics: told of commits and rebalances.
        raw_topic: whose offsets are committed.
    """

    Consumer: ClassVar[type[ConsumerT]] = WatermarkConsumer

    def __init__(self, url: list[URL], app: AppT, lanes: Lanes, metrics: Metrics, raw_topic: str) -> None:
        super().__init__(url, app)
        self._lanes = lanes
        self._metrics = metrics
        self._raw_topic = raw_topic

    def create_consumer(self, callback: ConsumerCallback, **kwargs: Any) -> ConsumerT:
        """Make the consumer, and tell it whom to ask."""
        consumer = super().create_consumer(callback, **kwargs)
        cast("WatermarkConsumer", consumer).attach(self._lanes, self._metrics, self._raw_topic)
        return consumer
