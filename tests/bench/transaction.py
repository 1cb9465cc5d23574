"""Section `transaction`: where the time of a worker's transaction goes, by request."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import NewTopic

from bench.context import Context
from bench.measure import Budget, Figure, Section
from bench.traces import STREAM_BYTES
from knowledgepulse_kafka.broker_requests import name_of
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.producer import TransactionalProducer
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord, Position
from knowledgepulse_kafka.request_hook import RequestSender, changing
from knowledgepulse_kafka.request_waits import TRANSACTION
from knowledgepulse_kafka.transactional_publisher import TransactionalPublisher
from support.streams import admin_of

PARTITIONS = 4
OUTPUTS = 8
"""Records to each of two topics, as contributed and as ledger entries."""
ENTRY_BYTES = 2_000
INTERVAL = 0.1
COUNT, COUNT_SHORT = 200, 60
WARM_UP = 10

Samples = defaultdict[str, list[float]]
"""Milliseconds since the begin of a transaction, by what happened then."""


class _Requests:
    """The times of a producer's requests, since a transaction began."""

    def __init__(self) -> None:
        self.samples: Samples = defaultdict(list)
        self.began = 0.0

    def producer(self, **arguments: Any) -> TransactionalProducer:
        """Return a producer that is timed."""
        return changing(TransactionalProducer(**arguments), self._timed)

    def note(self, what: str) -> None:
        """Note that something happens now."""
        self.samples[what].append((time.perf_counter() - self.began) * 1000)

    def _timed(self, send: RequestSender) -> RequestSender:
        async def sending(request: Any, *arguments: Any, **options: Any) -> Any:
            name = name_of(request.API_KEY)
            if name not in TRANSACTION:
                return await send(request, *arguments, **options)
            self.note(f"{name} is sent")
            response = await send(request, *arguments, **options)
            self.note(f"{name} is answered")
            return response

        return sending


async def run(context: Context, budget: Budget) -> Section:
    """Commit one small transaction after another, and read their outputs."""
    section = Section("transaction", f"A transaction with {2 * OUTPUTS} records and {PARTITIONS} positions")
    requests, name = _Requests(), f"bench-{uuid4().hex[:8]}"
    topics = [f"{name}-outputs", f"{name}-changelog"]
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(admin_of(context.servers))
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics])
        stack.push_async_callback(admin.delete_topics, topics)
        consumer = AIOKafkaConsumer(bootstrap_servers=context.servers, isolation_level="read_committed")
        await stack.enter_async_context(consumer)
        consumer.assign([TopicPartition(topics[0], number) for number in range(PARTITIONS)])
        config = Config(bootstrap_servers=context.servers)
        publisher = TransactionalPublisher(config, name, new_producer=requests.producer)
        await stack.enter_async_context(publisher)
        for number in range(COUNT_SHORT if context.short else COUNT):
            if number == WARM_UP:
                requests.samples.clear()
            requests.began = time.perf_counter()
            positions = {(topics[0], partition): Position(number) for partition in range(PARTITIONS)}
            await publisher.commit(_records(topics), positions, GroupMetadata(name))
            requests.note("the transaction is committed")
            await _read(consumer)
            requests.note("its outputs are read")
            await asyncio.sleep(max(0.0, INTERVAL - (time.perf_counter() - requests.began)))
    section.figures += [Figure(what, "ms", times, "samples") for what, times in requests.samples.items()]
    section.notes.append(
        "since the transaction began; brokers verify a partition's records, and then the positions, one at a "
        "time, so the positions are sent when the records are written (KIP-890)"
    )
    return section


def _records(topics: list[str]) -> list[OutputRecord]:
    return [
        OutputRecord(topic, number % PARTITIONS, NO_TIMESTAMP, None, bytes(size), ())
        for topic, size in zip(topics, (STREAM_BYTES, ENTRY_BYTES), strict=True)
        for number in range(OUTPUTS)
    ]


async def _read(consumer: AIOKafkaConsumer) -> None:
    for _ in range(OUTPUTS):
        await consumer.getone()
