"""The topics that clients read: committed, aborted and open transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

COMMITTED, ABORTED, OPEN, MARKERS = "committed", "aborted", "open", "markers"
TRANSACTIONS = ((COMMITTED, 2), (ABORTED, 2), (COMMITTED, 1), (ABORTED, 1), (OPEN, 2))
"""What one producer writes, with the numbers of records: several of a kind, since one fetch has them all."""

_OPEN_LIMIT = 15 * 60 * 1000
"""Milliseconds until the brokers abort a transaction: the most that they allow by default."""

RECORDS = {
    kind: sum(records for of, records in TRANSACTIONS if of == kind) for kind in (COMMITTED, ABORTED, OPEN)
}
"""How many records there are of each kind. Markers are none."""


class ScriptedTopic:
    """A topic of one partition with the transactions; the last one is open until :meth:`end`."""

    def __init__(self, bootstrap: str, name: str, producer: AIOKafkaProducer) -> None:
        self.name = name
        self._bootstrap = bootstrap
        self._producer = producer
        self._partition = TopicPartition(name, 0)

    async def write(self) -> None:
        """Write the transactions."""
        for kind, records in TRANSACTIONS:
            await self._producer.begin_transaction()
            for _ in range(records):
                await self._producer.send_and_wait(self.name, value(kind), b"key", partition=0)
            if kind == COMMITTED:
                await self._producer.commit_transaction()
            elif kind == ABORTED:
                await self._producer.abort_transaction()

    async def end(self) -> None:
        """Abort the open transaction."""
        await self._producer.abort_transaction()

    async def lag(self, group: str) -> int | None:
        """Return what tools show as a group's lag: to the end of the partition; None without a position."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            committed = (await admin.list_consumer_group_offsets(group)).get(self._partition)
        finally:
            await admin.close()
        if committed is None or committed.offset < 0:
            return None
        async with AIOKafkaConsumer(bootstrap_servers=self._bootstrap) as consumer:
            return int((await consumer.end_offsets([self._partition]))[self._partition]) - committed.offset


def value(kind: str) -> bytes:
    """Return the value of a transaction's records: a line of JSON, which clients print as it is."""
    return f'{{"record": "{kind}"}}'.encode()


@asynccontextmanager
async def scripted_topic(bootstrap: str, name: str) -> AsyncIterator[ScriptedTopic]:
    """Create a topic with the transactions."""
    await create(bootstrap, {name: 1})
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=f"writer-{uuid4()}", transaction_timeout_ms=_OPEN_LIMIT
    )
    async with producer:
        topic = ScriptedTopic(bootstrap, name, producer)
        await topic.write()
        yield topic


async def create(bootstrap: str, topics: dict[str, int]) -> None:
    """Create topics with these numbers of partitions."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, partitions, 1) for name, partitions in topics.items()])
    finally:
        await admin.close()


async def places(bootstrap: str, topic: str, partitions: int) -> dict[str, set[int]]:
    """Return the partitions in which each key has records."""
    found: dict[str, set[int]] = {}
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        every = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(every)
        ends = await consumer.end_offsets(every)
        for partition in every:
            while await consumer.position(partition) < ends[partition]:
                for records in (await consumer.getmany(partition, timeout_ms=500)).values():
                    for record in records:
                        found.setdefault(record.key.decode(), set()).add(partition.partition)
    return found
