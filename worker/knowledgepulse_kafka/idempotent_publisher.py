"""Publish each record once, however long the brokers are away (KIP-98)."""

from __future__ import annotations

import asyncio
from typing import Self

from aiokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    UnknownError,
)
from aiokafka.structs import RecordMetadata

from knowledgepulse_kafka.broker_requests import refused_producer
from knowledgepulse_kafka.client_factory import new_producer
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.connection_diagnosis import unreachable
from knowledgepulse_kafka.errors import DeliveryError, TooLargeError
from knowledgepulse_kafka.producer import abandon
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord
from knowledgepulse_kafka.throttling import PRODUCER_QUOTA, logged_throttle

_LINGER_MS = 5
_CLOSE_LIMIT = 5.0
"""Seconds to wait, on closing, for records that are still in flight."""


class IdempotentPublisher:
    """A producer that retries until the brokers answer; they recognise its retries and drop duplicates.

    It waits as long as a quota demands, and logs this.

    An asynchronous context manager.

    Args:
        config: the connection.
        max_message_bytes: the size of the largest record that the topics accept.
    """

    def __init__(self, config: Config, max_message_bytes: int = 1_048_576) -> None:
        self._config = config
        self._max_message_bytes = max_message_bytes

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            BrokerError: the brokers have no transactions, of which producers' ids are a part.
            NoBrokerError: no broker can be reached.
            SecurityError: the brokers refuse the login or the certificate.
        """
        self._producer = new_producer(
            self._config,
            logged_throttle(PRODUCER_QUOTA),
            linger_ms=_LINGER_MS,
            max_request_size=self._max_message_bytes,
        )
        try:
            async with asyncio.timeout(self._config.request_timeout):
                await self._producer.start()
        except UnknownError as error:
            await self._close()
            raise refused_producer(self._config, error) from error
        except (KafkaError, TimeoutError) as error:
            await self._close()
            cause = error if isinstance(error, KafkaError) else KafkaTimeoutError("no producer id was given")
            raise await unreachable(self._config, cause) from error
        except asyncio.CancelledError:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait a few seconds for records in flight, then disconnect."""
        await self._close()

    async def send(self, topic: str, value: bytes, key: bytes | None) -> asyncio.Future[RecordMetadata]:
        """Send a record with a key and a value; see :meth:`send_record`."""
        return await self.send_record(OutputRecord(topic, None, NO_TIMESTAMP, key, value, ()))

    async def send_record(self, record: OutputRecord) -> asyncio.Future[RecordMetadata]:
        """Send a record and return a future of its confirmation; wait while the buffer is full.

        Raises:
            DeliveryError: the topic does not exist or does not accept the record.
        """
        while True:
            try:
                delivery: asyncio.Future[RecordMetadata] = await self._producer.send(
                    record.topic,
                    record.value,
                    key=record.key,
                    partition=record.partition,
                    timestamp_ms=None if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms,
                    headers=list(record.headers),
                )
            except KafkaTimeoutError:  # the buffer stayed full, and the record is not in it
                continue
            except KafkaError as error:
                raise delivery_error(record.topic, error) from error
            return delivery

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_LIMIT):
                await self._producer.stop()
        except TimeoutError:  # stop() waits for the brokers for as long as they are away
            await abandon(self._producer)


def delivery_error(topic: str, error: BaseException) -> DeliveryError:
    """Translate the client's error to a :class:`~knowledgepulse_kafka.errors.DeliveryError`."""
    if isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError):
        return TooLargeError(f"{topic}: a record is larger than the topic's max.message.bytes")
    return DeliveryError(f"{topic}: {type(error).__name__}: {error}")
