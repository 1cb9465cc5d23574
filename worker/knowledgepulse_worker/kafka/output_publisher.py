"""Publish records and wait until the broker confirms them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.structs import RecordMetadata

from knowledgepulse_worker.errors import DeliveryError, TimestampError, TooLargeError
from knowledgepulse_worker.kafka.connection import client_arguments
from knowledgepulse_worker.kafka.lease import Lease
from knowledgepulse_worker.kafka.partition import PARTITIONER
from knowledgepulse_worker.kafka.preflight.diagnosis import connect
from knowledgepulse_worker.kafka.wire.producer import send_no_more
from knowledgepulse_worker.records.record import NO_TIMESTAMP, OutputRecord
from knowledgepulse_worker.settings import KafkaSettings

BATCH_BYTES = 262_144
# How long a batch waits for more records. Without it, most batches hold one record, and requests dominate.
LINGER_MS = 5
# Far more than the batch and record framing adds to key, value and headers (KIP-98's record format v2).
FRAMING_BYTES = 4096


class OutputPublisher:
    """A producer that waits for all in-sync replicas and sends nothing more after an unconfirmed record.

    Otherwise a ledger entry could be written although its predecessor was not. The next process would score
    the predecessor again, but keep the later record's old score. For the same reason batches must fit the
    changelog: of two batches, the broker may refuse the first and still write the second.

    Faust's own producer takes timestamps as float seconds, which loses milliseconds. It also logs the whole
    message when a send fails.

    Args:
        kafka: the connection.
        max_request_bytes: the largest record that any output topic accepts.
        lease: the lease that must be held to send a record.
        batch_bytes: the size limit of a batch with more than one record.
    """

    def __init__(
        self, kafka: KafkaSettings, max_request_bytes: int, lease: Lease, batch_bytes: int = BATCH_BYTES
    ) -> None:
        self._lease = lease
        self._producer = AIOKafkaProducer(
            **client_arguments(kafka),
            acks="all",
            request_timeout_ms=int(kafka.request_timeout * 1000),
            max_batch_size=batch_bytes,
            linger_ms=LINGER_MS,
            max_request_size=max_request_bytes + FRAMING_BYTES,
        )

    async def start(self) -> None:
        """Connect."""
        await self._producer.start()

    async def stop(self) -> None:
        """Flush and close."""
        await self._producer.stop()

    async def send(self, record: OutputRecord) -> asyncio.Future[int]:
        """See :meth:`~knowledgepulse_worker.records.publisher.Publisher.send`; waits for the lease."""
        await self._lease.hold()
        try:
            if record.key is None and record.value is None:  # the client's send() rejects it
                delivery = await self._send_batch(record, _timestamp(record))
            else:
                delivery = await self._producer.send(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    timestamp_ms=_timestamp(record),
                    headers=list(record.headers),
                )
        except KafkaError as error:
            refused: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            refused.set_exception(self._failure(record, error))
            return refused
        return self._offset_of(record, delivery)

    async def send_alone(self, record: OutputRecord) -> int:
        """See :meth:`~knowledgepulse_worker.records.publisher.Publisher.send_alone`; waits for the lease."""
        try:
            return await self._confirmed_alone(record, _timestamp(record))
        except TimestampError:
            if record.timestamp_ms != NO_TIMESTAMP:
                raise
        # This machine's clock or the broker's is wrong; records without a timestamp are never rejected.
        return await self._confirmed_alone(record, NO_TIMESTAMP)

    async def flush(self) -> None:
        """See :meth:`~knowledgepulse_worker.records.publisher.Publisher.flush`."""
        await self._producer.flush()

    async def _confirmed_alone(self, record: OutputRecord, timestamp_ms: int) -> int:
        await self._lease.hold()
        try:
            delivery = await self._send_batch(record, timestamp_ms)
        except KafkaError as error:
            raise self._failure(record, error) from error
        return await self._offset_of(record, delivery)

    async def _send_batch(self, record: OutputRecord, timestamp_ms: int) -> Any:
        """Send a batch with only this record, and return the client's future."""
        partition = record.partition
        if partition is None:
            partitions = sorted(await self._producer.partitions_for(record.topic))
            partition = PARTITIONER(record.key, partitions, partitions)
        batch = self._producer.create_batch()
        batch.append(key=record.key, value=record.value, timestamp=timestamp_ms, headers=list(record.headers))
        batch.close()  # otherwise records sent meanwhile would join it
        return await self._producer.send_batch(batch, record.topic, partition=partition)

    def _offset_of(
        self, record: OutputRecord, delivery: asyncio.Future[RecordMetadata]
    ) -> asyncio.Future[int]:
        """Return a future of the offset, with the client's errors translated, without starting a task."""
        offset: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def settle(delivery: asyncio.Future[RecordMetadata]) -> None:
            error = None if delivery.cancelled() else delivery.exception()
            failure = self._failure(record, error) if isinstance(error, KafkaError) else error
            if offset.done():
                return
            if delivery.cancelled():
                offset.cancel()
            elif failure is not None:
                offset.set_exception(failure)
            else:
                offset.set_result(delivery.result().offset)

        delivery.add_done_callback(settle)
        return offset

    def _failure(self, record: OutputRecord, error: KafkaError) -> DeliveryError:
        failure = _translate(record, error)
        if type(failure) is DeliveryError:
            send_no_more(self._producer, error)
        return failure


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return the uncompressed size of a batch with only this record."""
    return int(DefaultRecordBatchBuilder.estimate_size_in_bytes(key, value, list(headers)))


@asynccontextmanager
async def connected_publisher(kafka: KafkaSettings, max_request_bytes: int) -> AsyncIterator[OutputPublisher]:
    """Connect a publisher for topics that no other process writes to, which need no lease.

    Raises:
        NoBrokerError: no broker can be reached.
        SecurityError: the brokers refuse the login or the certificate.
    """
    lease = Lease(math.inf)
    lease.renew(0)
    publisher = OutputPublisher(kafka, max_request_bytes, lease)
    await connect(publisher, kafka)
    try:
        yield publisher
    finally:
        await publisher.stop()


def _timestamp(record: OutputRecord) -> int:
    """Return the record's timestamp, or the current time if it has none."""
    return time.time_ns() // 1_000_000 if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms


def _translate(record: OutputRecord, error: KafkaError) -> DeliveryError:
    # This text is logged, so it names the topic and the partition but never the content.
    where = f"{record.topic}, partition {'by key' if record.partition is None else record.partition}"
    if isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError):
        return TooLargeError(f"{where}: {type(error).__name__}")
    if isinstance(error, InvalidTimestampError):
        return TimestampError(f"{where}: {type(error).__name__}")
    return DeliveryError(f"{where}: {type(error).__name__}: {error}")
