"""Sends records and waits for the broker's word on each."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.structs import RecordMetadata

from worker.errors import DeliveryError, NoBrokerError, TooLargeError
from worker.settings import KafkaSettings
from worker.stream.lease import Lease
from worker.stream.records import OutputRecord

BATCH_BYTES = 262_144
# How long a batch waits for more. Without it, most batches are of one record, and requests take most of the
# time.
LINGER_MS = 5
# What a batch and a record's framing add to key, value and headers is far less (KIP-98's record format v2).
FRAMING_BYTES = 4096


class Publisher(Protocol):
    """Publishes records in order, for each topic and partition."""

    async def send(self, record: OutputRecord) -> asyncio.Future[int]:
        """Hand a record over; the future is its offset once the broker has confirmed it.

        The future raises :class:`TooLargeError` or :class:`DeliveryError`.
        """
        ...

    async def send_alone(self, record: OutputRecord) -> int:
        """Send a record in a batch of its own, and wait; returns its offset.

        Raises:
            TooLargeError: it is the record itself that is too large.
            DeliveryError: the broker refused or did not confirm it.
        """
        ...


class KafkaPublisher:
    """A producer that waits for all in-sync replicas.

    It is not Faust's: that takes timestamps as float seconds, which loses milliseconds, and logs the whole
    message when a send fails.

    Args:
        kafka: how to reach the brokers.
        max_request_bytes: the largest record that any output topic takes.
        lease: nothing is sent while it is not held.
    """

    def __init__(self, kafka: KafkaSettings, max_request_bytes: int, lease: Lease) -> None:
        self._lease = lease
        self._producer = AIOKafkaProducer(
            **client_arguments(kafka),
            acks="all",
            request_timeout_ms=int(kafka.request_timeout * 1000),
            max_batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
            max_request_size=max_request_bytes + FRAMING_BYTES,
        )

    async def start(self) -> None:
        """Connect."""
        await self._producer.start()

    async def stop(self) -> None:
        """Send what is buffered, and close."""
        await self._producer.stop()

    async def send(self, record: OutputRecord) -> asyncio.Future[int]:
        """See :meth:`Publisher.send`; waits while the lease is not held."""
        await self._lease.hold()
        try:
            if record.key is None and record.value is None:  # the client's ordinary send does not take it
                delivery = await self._send_batch(record)
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
            refused.set_exception(_translate(record, error))
            return refused
        return _offset_of(record, delivery)

    async def send_alone(self, record: OutputRecord) -> int:
        """See :meth:`Publisher.send_alone`; waits likewise."""
        await self._lease.hold()
        try:
            delivery = await self._send_batch(record)
        except KafkaError as error:
            raise _translate(record, error) from error
        return await _offset_of(record, delivery)

    async def _send_batch(self, record: OutputRecord) -> Any:
        """Hand over a batch of just this record; returns the client's future."""
        partition = record.partition
        if partition is None:
            await self._producer.partitions_for(record.topic)  # the partitioner needs the topic's metadata
            ask = self._producer._partition  # noqa: SLF001 - the partitioner can be asked in no other way
            partition = ask(record.topic, None, None, None, record.key, record.value)
        batch = self._producer.create_batch()
        batch.append(
            key=record.key, value=record.value, timestamp=_timestamp(record), headers=list(record.headers)
        )
        batch.close()  # else records that are sent meanwhile would join it
        return await self._producer.send_batch(batch, record.topic, partition=partition)


def client_arguments(kafka: KafkaSettings) -> dict[str, Any]:
    """Return what every aiokafka client is made with."""
    arguments: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "security_protocol": kafka.security_protocol,
    }
    if kafka.security_protocol.endswith("SSL"):
        arguments["ssl_context"] = ssl_context(kafka)
    if kafka.security_protocol.startswith("SASL"):
        arguments["sasl_mechanism"] = kafka.sasl_mechanism
        arguments["sasl_plain_username"] = kafka.sasl_username
        arguments["sasl_plain_password"] = (
            kafka.sasl_password.get_secret_value() if kafka.sasl_password else None
        )
    return arguments


def unreachable(kafka: KafkaSettings, error: KafkaError) -> NoBrokerError:
    """Return the error of a client that reaches none of the brokers, with the setting that names them."""
    return NoBrokerError(f"kafka.bootstrap_servers: {kafka.bootstrap_servers}: {error}")


def ssl_context(kafka: KafkaSettings) -> ssl.SSLContext:
    """Return the context that verifies the brokers."""
    return ssl.create_default_context(cafile=str(kafka.ssl_cafile) if kafka.ssl_cafile else None)


def _offset_of(record: OutputRecord, delivery: asyncio.Future[RecordMetadata]) -> asyncio.Future[int]:
    """Return the offset that the client's future brings, or our error; no task is needed for that."""
    offset: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def settle(delivery: asyncio.Future[RecordMetadata]) -> None:
        if offset.done():
            return
        if delivery.cancelled():
            offset.cancel()
        elif error := delivery.exception():
            offset.set_exception(_translate(record, error) if isinstance(error, KafkaError) else error)
        else:
            offset.set_result(delivery.result().offset)

    delivery.add_done_callback(settle)
    return offset


def _timestamp(record: OutputRecord) -> int:
    """The record's timestamp; now for one that has none."""
    return record.timestamp_ms if record.timestamp_ms >= 0 else time.time_ns() // 1_000_000


def _translate(record: OutputRecord, error: KafkaError) -> DeliveryError:
    # Names the place, never the content: this text is logged.
    where = f"{record.topic}, partition {'by key' if record.partition is None else record.partition}"
    if isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError):
        return TooLargeError(f"{where}: {type(error).__name__}")
    return DeliveryError(f"{where}: {type(error).__name__}: {error}")
