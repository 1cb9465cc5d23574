"""Which partitions a group member may read."""

from __future__ import annotations

from aiokafka import TopicPartition

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.shared_reader import SharedReader


class Consumer:
    """The client's consumer, whose assignment stays the former one until it has joined the group again."""

    def __init__(self, *_):
        self.listener = None

    def subscribe(self, _topics, listener):
        self.listener = listener

    async def start(self): ...

    async def stop(self): ...

    def assignment(self):
        return {TopicPartition("spans", 0)}


async def test_no_partition_is_assigned_while_they_are_reassigned():
    """The former owner once opened its partitions again, which fenced off the next one."""
    consumer = Consumer()
    seen = []

    async def on_revoked():
        seen.append(reader.assigned)

    async with SharedReader(Config(), "spans", 2**20, 60.0, on_revoked, lambda *_: consumer) as reader:
        assert reader.assigned == set()
        await consumer.listener.on_partitions_assigned({TopicPartition("spans", 0)})
        assert reader.assigned == {0}
        await consumer.listener.on_partitions_revoked({TopicPartition("spans", 0)})
        assert (seen, reader.assigned) == ([set()], set())
        await consumer.listener.on_partitions_assigned({TopicPartition("spans", 1)})
        assert reader.assigned == {1}
