"""Reads what topics hold when it is asked, committed records only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from worker.errors import TopicError
from worker.settings import KafkaSettings
from worker.stream.publisher import client_arguments, unreachable

_POLL_MS = 20


class TopicReader:
    """A consumer without a group: it reads ranges of offsets, and leaves no trace.

    An asynchronous context manager: it connects on entry. What the client raises inside comes out as a
    :class:`~worker.errors.TopicError`.
    """

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._consumer = AIOKafkaConsumer(
            **client_arguments(kafka),
            isolation_level="read_committed",
            auto_offset_reset="earliest",  # what retention takes away meanwhile is passed over, no more
            # What is read is there already. A fetch at the end would keep later requests waiting.
            fetch_max_wait_ms=_POLL_MS,
        )

    async def __aenter__(self) -> Self:
        try:
            await self._consumer.start()
        except KafkaError as error:
            await self._consumer.stop()
            raise unreachable(self._kafka, error) from error
        await asyncio.sleep(0)  # the client cannot be stopped before its own tasks have begun
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._consumer.stop()
        if isinstance(error, KafkaError):
            raise TopicError(f"nothing can be read: {type(error).__name__}: {error}") from error

    async def bounds(self, topic: str, partition: int) -> range:
        """Return the offsets that a partition holds now; some of them may have no record."""
        tp = TopicPartition(topic, partition)
        begin = await self._consumer.beginning_offsets([tp])
        end = await self._consumer.end_offsets([tp])
        return range(begin[tp], end[tp])

    async def first_since(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Return the offset before which every record is older; None when all are."""
        tp = TopicPartition(topic, partition)
        found = (await self._consumer.offsets_for_times({tp: timestamp_ms}))[tp]
        return None if found is None else int(found.offset)

    async def read(self, topic: str, partition: int, offsets: range) -> AsyncIterator[ConsumerRecord]:
        """Yield the records in a range of offsets.

        Raises:
            TopicError: the broker gives nothing for as long as ``kafka.request_timeout``.
        """
        tp = TopicPartition(topic, partition)
        self._consumer.assign([tp])
        self._consumer.seek(tp, offsets.start)
        while records := await self._fetch(tp, offsets.stop):
            for record in records:
                if record.offset < offsets.stop:
                    yield record

    async def _fetch(self, tp: TopicPartition, end: int) -> list[ConsumerRecord]:
        """Return the next records; none when the position has reached the end."""
        try:
            async with asyncio.timeout(self._kafka.request_timeout):
                while await self._consumer.position(tp) < end:
                    records: list[ConsumerRecord] | None
                    records = (await self._consumer.getmany(tp, timeout_ms=_POLL_MS)).get(tp)
                    if records:
                        return records
        except TimeoutError:
            raise TopicError(
                f"{tp.topic}/{tp.partition}: nothing could be read for {self._kafka.request_timeout:g} s"
            ) from None
        return []
