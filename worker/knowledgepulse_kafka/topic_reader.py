"""Read the committed records in ranges of a topic's offsets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord as Record

from knowledgepulse_kafka.client_factory import new_consumer
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.connection_diagnosis import connect
from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.fetch_pacing import pace_fetches
from knowledgepulse_kafka.record_batches import MAX_POLL_RECORDS, decode_within, epoch_of, fault_of
from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_kafka.request_waits import Waits
from knowledgepulse_kafka.throttle import Throttle
from knowledgepulse_kafka.throttling import CONSUMER_QUOTA, logged_throttle
from knowledgepulse_kafka.topics import Topic

__all__ = ["ProgressCallback", "Reader", "Record", "TopicReader", "raw_record", "read_topic"]

_POLL_MS, _FOLLOW_MS = 20, 500

ProgressCallback = Callable[[int, int], None]
"""Called with the number of offsets read so far and the total number."""


class Reader(Protocol):
    """Reads ranges of offsets from topics."""

    async def bounds(self, topic: str, partition: int) -> range:
        """Return the offsets that a partition holds now; some of them may have no record."""
        ...

    async def appended(self, topic: str, partitions: Collection[int]) -> dict[int, range]:
        """Return the offsets that partitions hold now, including the records of open transactions."""
        ...

    async def first_since(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Return the offset of the first record with that timestamp or a later one; None if there is none."""
        ...

    def read(self, topic: str, partition: int, offsets: range) -> AsyncIterator[Record]:
        """Yield the records in a range of offsets."""
        ...


async def read_topic(
    reader: Reader, topic: Topic, since_ms: int | None, on_progress: ProgressCallback
) -> AsyncIterator[Record]:
    """Yield a topic's present records, by partition and offset.

    Args:
        reader: a connected reader.
        topic: the topic.
        since_ms: start each partition at its first record with that timestamp or a later one; the records
            that follow it may be older. None reads everything.
        on_progress: called as reading proceeds.
    """
    bounds = []
    for partition in range(topic.partitions):
        held = await reader.bounds(topic.name, partition)
        if since_ms is not None:
            first = await reader.first_since(topic.name, partition, since_ms)
            held = range(held.stop if first is None else max(first, held.start), held.stop)
        bounds.append(held)
    total = sum(map(len, bounds))
    before = 0
    for partition, offsets in enumerate(bounds):
        async for record in reader.read(topic.name, partition, offsets):
            on_progress(before + record.offset - offsets.start, total)
            yield record
        before += len(offsets)
    on_progress(total, total)


async def held_offsets(consumer: AIOKafkaConsumer, partition: TopicPartition) -> range:
    """Return the offsets that a partition holds now; some of them may have no record."""
    begin = await consumer.beginning_offsets([partition])
    end = await consumer.end_offsets([partition])
    return range(begin[partition], end[partition])


def raw_record(record: Record, topic_id: bytes = b"") -> RawRecord:
    """Convert a client's record to a raw record."""
    return RawRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=-1 if record.timestamp is None else record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        topic_id=topic_id,
        fault=fault_of(record),
        leader_epoch=epoch_of(record),
    )


class TopicReader:
    """A consumer without a group, which leaves no trace on the broker.

    An asynchronous context manager: it connects on entry. A client error inside it is raised as a
    :class:`~knowledgepulse_kafka.errors.TopicError`.

    Args:
        config: the connection.
        batch_bytes: the largest batch to decode, inflated.
        throttle: notes the times for which brokers throttle the client; by default, it logs them.
        waits: notes what the client waits for.
    """

    def __init__(
        self,
        config: Config,
        batch_bytes: int,
        throttle: Throttle | None = None,
        waits: Waits | None = None,
    ) -> None:
        self._config = config
        self._waits = waits or Waits()
        self._throttle = throttle or logged_throttle(CONSUMER_QUOTA)
        self._batch_bytes = batch_bytes
        self._consumer = new_consumer(
            config,
            self._throttle,
            self._waits,
            auto_offset_reset="earliest",  # retention may delete the next records at any time
            # All records are there already; a fetch at the end would delay the next request.
            fetch_max_wait_ms=_POLL_MS,
            max_poll_records=MAX_POLL_RECORDS,
        )

    async def __aenter__(self) -> Self:
        await connect(self._consumer, self._config)
        decode_within(self._consumer, self._batch_bytes)
        pace_fetches(self._consumer)
        await asyncio.sleep(0)  # the client cannot be stopped before its tasks have started
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._consumer.stop()
        if isinstance(error, KafkaError):
            raise TopicError(f"nothing can be read: {type(error).__name__}: {error}") from error

    async def bounds(self, topic: str, partition: int) -> range:
        """Return the offsets that a partition holds now; some of them may have no record."""
        return await held_offsets(self._consumer, TopicPartition(topic, partition))

    async def appended(self, topic: str, partitions: Collection[int]) -> dict[int, range]:
        """Return the offsets that partitions hold now, including the records of open transactions.

        The brokers tell the end of such records only with a fetch (the high watermark); for consumers of
        committed records, an end offset is the last stable one.

        Raises:
            TopicError: the brokers do not answer for ``Config.request_timeout``.
        """
        tps = [TopicPartition(topic, number) for number in partitions]
        self._consumer.assign(tps)
        starts = await self._consumer.beginning_offsets(tps)
        for tp, stable_end in (await self._consumer.end_offsets(tps)).items():
            self._consumer.seek(tp, stable_end)  # a fetch from there is empty
        try:
            async with asyncio.timeout(self._config.request_timeout):
                while silent := [tp for tp in tps if self._consumer.highwater(tp) is None]:
                    await self._consumer.getmany(timeout_ms=_POLL_MS)
        except TimeoutError:
            raise self._silent(silent[0]) from None
        return {tp.partition: range(starts[tp], self._consumer.highwater(tp)) for tp in tps}

    async def first_since(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Return the offset of the first record with that timestamp or a later one; None if there is none."""
        tp = TopicPartition(topic, partition)
        first = (await self._consumer.offsets_for_times({tp: timestamp_ms}))[tp]
        return None if first is None else int(first.offset)

    async def read(self, topic: str, partition: int, offsets: range) -> AsyncIterator[Record]:
        """Yield the records in a range of offsets.

        Raises:
            TopicError: the broker returns nothing for ``Config.request_timeout``, although it does not
                throttle the client, and no open transaction holds back the records.
        """
        if not offsets:
            # A consumer stopped right after an assignment may hang: its fetcher swallows the cancellation
            # while it awaits requests of the previous assignment. Reading a record gets it past that point.
            return
        tp = TopicPartition(topic, partition)
        self._consumer.assign([tp])
        self._consumer.seek(tp, offsets.start)
        while records := await self._fetch(tp, offsets.stop):
            for record in records:
                if record.offset < offsets.stop:
                    yield record

    async def follow(self, topics: Mapping[str, int]) -> AsyncIterator[Sequence[Record]]:
        """Yield the committed records of topics from their beginnings on, without an end, as they arrive.

        Args:
            topics: the topics with their numbers of partitions.

        Yields:
            records; none if none has arrived for a while.
        """
        places = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
        self._consumer.assign(places)
        await self._consumer.seek_to_beginning(*places)
        while True:
            arrived = await self._consumer.getmany(timeout_ms=_FOLLOW_MS)
            yield [record for records in arrived.values() for record in records]

    async def _fetch(self, tp: TopicPartition, end: int) -> list[Record]:
        """Return the next records; an empty list once the position has reached the end."""
        while True:
            try:
                async with asyncio.timeout(self._config.request_timeout):
                    while await self._consumer.position(tp) < end:
                        records: list[Record] | None
                        records = (await self._consumer.getmany(tp, timeout_ms=_POLL_MS)).get(tp)
                        if records:
                            return records
                        await self._is_held_back(tp, end)
            except TimeoutError:
                is_late = await self._consumer.position(tp) < end and not self._throttle.recent
                if is_late and not await self._is_held_back(tp, end):
                    raise self._silent(tp) from None
            else:
                return []

    async def _is_held_back(self, tp: TopicPartition, end: int) -> bool:
        """Return whether the next records are behind an open transaction, and note that.

        The brokers still answer then: with nothing, until the transaction ends.
        """
        stable = self._consumer.last_stable_offset(tp)
        if stable is None or not stable <= await self._consumer.position(tp) < end:
            return False
        answered = (self._consumer.last_poll_timestamp(tp) or 0) / 1000
        if time.time() - answered > self._config.request_timeout:
            return False
        self._waits.held_back(tp.topic, tp.partition, end - stable)
        return True

    def _silent(self, tp: TopicPartition) -> TopicError:
        limit = f"{self._config.request_timeout:g} s ({self._config.prefix}request_timeout)"
        return TopicError(f"{tp.topic}/{tp.partition}: no records for {limit}")
