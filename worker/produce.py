"""Publish traces to the raw topic, from an agent's process or from files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Self

from aiokafka import AIOKafkaProducer  # noqa: TID251 - the publisher belongs to worker/kafka, and moves there
from aiokafka.errors import KafkaError  # noqa: TID251 - likewise

from schemas import ReasoningTrace
from worker.errors import DeliveryError
from worker.kafka.connection import client_arguments
from worker.kafka.diagnosis import unreachable
from worker.kafka.rights import publishing_rights, require_rights
from worker.settings import Settings

KeyBy = Literal["id", "agent_id", "task_domain"]
_UNCONFIRMED = 1000


@dataclass
class Published:
    """How many lines were sent, and how many of them had nothing to be keyed by."""

    records: int = 0
    without_key: int = 0


class TracePublisher:
    """Publishes traces to the raw topic, from an agent's process or from a file.

    ::

        async with TracePublisher(settings) as publisher:
            await publisher.publish(trace)

    The key decides the partition as it does for Kafka's own clients (murmur2), and the partition decides
    which traces are compared: keyed by ``id``, a random share of them; by ``agent_id`` or ``task_domain``,
    those of the same agent or domain.

    Args:
        settings: the brokers and the raw topic.
        key_by: the trace's id, or the member of its metadata that becomes the record's key.
    """

    def __init__(self, settings: Settings, key_by: KeyBy = "id") -> None:
        self._settings = settings
        self._key_by = key_by
        self._deliveries: list[asyncio.Future[object]] = []

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            NoBrokerError: no broker can be reached.
        """
        self._producer = AIOKafkaProducer(**client_arguments(self._settings.kafka), acks="all", linger_ms=5)
        try:
            await self._producer.start()
        except KafkaError as error:
            await self._producer.stop()
            raise await unreachable(self._settings.kafka, error) from error
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait until the broker has confirmed every trace, unless an error ends the block; disconnect.

        Raises:
            DeliveryError: the broker did not take a trace.
        """
        try:
            if kind is None:
                await self.flush()
        finally:
            await self._producer.stop()

    async def publish(self, trace: ReasoningTrace | bytes) -> bytes | None:
        """Send a trace, or its JSON as it is, and return its key; None where it has none.

        Waits while too many traces are unconfirmed.

        Raises:
            DeliveryError: the broker did not take this trace or one before it.
        """
        value = trace if isinstance(trace, bytes) else trace.to_json()
        key = _key(value, self._key_by)
        with self._delivery_errors():
            self._deliveries.append(await self._producer.send(self._settings.topics.raw, value, key=key))
        if len(self._deliveries) >= _UNCONFIRMED:
            await self.flush()
        return key

    async def flush(self) -> None:
        """Wait until the broker has confirmed every trace.

        Raises:
            DeliveryError: the broker did not take a trace.
        """
        deliveries, self._deliveries = self._deliveries, []
        with self._delivery_errors():
            await asyncio.gather(*deliveries)

    @contextmanager
    def _delivery_errors(self) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            raise DeliveryError(f"{self._settings.topics.raw}: {type(error).__name__}: {error}") from error


async def publish_lines(lines: Iterable[bytes], settings: Settings, key_by: KeyBy = "id") -> Published:
    """Send each line as it is, and wait until the broker has confirmed them all.

    Args:
        lines: one JSON document each; empty ones are passed over.
        settings: the brokers and the raw topic.
        key_by: see :class:`TracePublisher`.

    Raises:
        NoBrokerError: no broker can be reached.
        SecurityError: the brokers refuse the login, the certificate or a right.
        DeliveryError: the broker did not take a record.
    """
    await require_rights(settings.kafka, publishing_rights(settings))
    published = Published()
    async with TracePublisher(settings, key_by) as publisher:
        for line in lines:
            if value := line.strip():
                published.records += 1
                published.without_key += await publisher.publish(value) is None
    return published


def _key(value: bytes, key_by: KeyBy) -> bytes | None:
    try:
        trace = json.loads(value)
        key = trace["id"] if key_by == "id" else trace["metadata"][key_by]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return key.encode("utf-8", "replace") if isinstance(key, str) else None
