"""Publish traces from files to the raw topic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from worker.errors import DeliveryError
from worker.settings import Settings
from worker.stream.publisher import client_arguments, unreachable

KeyBy = Literal["id", "agent_id", "task_domain"]
_UNCONFIRMED = 1000


@dataclass
class Published:
    """How many lines were sent, and how many of them had nothing to be keyed by."""

    records: int = 0
    without_key: int = 0


async def publish_lines(lines: Iterable[bytes], settings: Settings, key_by: KeyBy = "id") -> Published:
    """Send each line as it is, and wait until the broker has confirmed them all.

    Args:
        lines: one JSON document each; empty ones are passed over.
        settings: the brokers and the raw topic.
        key_by: the trace's id, or the member of its metadata that becomes the record's key. Traces with
            the same key share a partition, and are compared with each other.

    Raises:
        NoBrokerError: no broker can be reached.
        DeliveryError: the broker did not take a record.
    """
    published = Published()
    producer = AIOKafkaProducer(**client_arguments(settings.kafka), acks="all", linger_ms=5)
    try:
        await producer.start()
    except KafkaError as error:
        await producer.stop()
        raise unreachable(settings.kafka, error) from error
    try:
        deliveries: list[asyncio.Future[object]] = []
        for line in lines:
            value = line.strip()
            if not value:
                continue
            key = _key(value, key_by)
            published.records += 1
            published.without_key += key is None
            deliveries.append(await producer.send(settings.topics.raw, value, key=key))
            if len(deliveries) >= _UNCONFIRMED:
                await asyncio.gather(*deliveries)
                deliveries.clear()
        await asyncio.gather(*deliveries)
    except KafkaError as error:
        raise DeliveryError(f"{settings.topics.raw}: {type(error).__name__}: {error}") from error
    finally:
        await producer.stop()
    return published


def _key(value: bytes, key_by: KeyBy) -> bytes | None:
    try:
        trace = json.loads(value)
        key = trace["id"] if key_by == "id" else trace["metadata"][key_by]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return key.encode("utf-8", "replace") if isinstance(key, str) else None
