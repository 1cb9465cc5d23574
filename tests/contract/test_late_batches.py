"""What brokers do with a batch of a former transaction that reaches them late.

The client keeps its producer's epoch from one transaction to the next, where Java raises it (KIP-890,
transaction version 2). So a late batch is refused by its sequence number alone, or by its epoch once a
producer has started again.
"""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import InvalidProducerEpoch, for_code
from aiokafka.protocol.produce import ProduceRequest

from knowledgepulse_kafka.commit_outcome import Committed, Refused
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord, Position
from knowledgepulse_kafka.transactional_publisher import TransactionalPublisher
from support.kafka_release import needs_kafka

pytestmark = pytest.mark.integration

MAX_BYTES = 1000


class Late:
    """A publisher, and what its client sends or might have sent."""

    def __init__(self, stream, publisher):
        self.publisher = publisher
        self._stream = stream
        self._at = TopicPartition(stream.settings.topics.raw, 0)
        self._group = GroupMetadata(stream.settings.kafka.group)

    def record(self, value):
        return OutputRecord(self._at.topic, self._at.partition, NO_TIMESTAMP, b"k", value, ())

    async def commit(self, value):
        return await self.publisher.commit([self.record(value)], {self._at: Position(1)}, self._group)

    async def open(self):
        """Have the coordinator add the partition to the open transaction."""
        transactions = self.publisher._producer._txn_manager
        transactions.maybe_add_partition_to_txn(self._at)
        while self._at in transactions.partitions_to_add():
            await asyncio.sleep(0.01)

    def batch(self, value, *, number=None):
        """Return a batch of the present producer, with the next sequence number or another."""
        producer = self.publisher._producer
        transactions, batch = producer._txn_manager, producer.create_batch()
        batch.append(key=b"k", value=value, timestamp=None)
        number = transactions.sequence_number(self._at) if number is None else number
        batch._set_producer_state(transactions.producer_id, transactions.producer_epoch, number)
        return bytes(batch._build())

    async def arrive(self, batch):
        """Let a batch reach the leader; return the error with which it answers."""
        producer = self.publisher._producer
        request = ProduceRequest(
            transactional_id=producer._txn_manager.transactional_id,
            required_acks=-1,
            timeout=10_000,
            topics=[(self._at.topic, [(self._at.partition, batch)])],
        )
        await producer.partitions_for(self._at.topic)
        leader = producer.client.cluster.leader_for_partition(self._at)
        while True:  # a broker verifies one request of a transaction at a time
            response = await producer.client.send(leader, request)
            ((_, ((_, code, *_),)),) = response.topics
            if not for_code(code).retriable:
                return for_code(code)

    async def read(self):
        return [record.value for record in await self._stream.read(self._at.topic)]


@pytest.fixture
async def late(make_stream):
    stream = await make_stream(1)
    await stream.configure_topic(stream.settings.topics.raw, {"max.message.bytes": str(MAX_BYTES)})
    config = stream.settings.kafka.client_config()
    async with TransactionalPublisher(config, f"late-{uuid4().hex}") as publisher:
        yield Late(stream, publisher)


@pytest.mark.parametrize("transactions", [1, 7], ids=["known", "forgotten"])
async def test_a_copy_of_a_former_batch_is_not_written_again(late, transactions):
    """A leader knows the last five batches of a producer."""
    copy = late.batch(b"0", number=0)
    values = [b"%d" % number for number in range(transactions)]
    for value in values:
        assert isinstance(await late.commit(value), Committed)

    async with late.publisher.transaction() as write:
        await write([late.record(b"next")])
        await late.arrive(copy)

    assert await late.read() == [*values, b"next"]


@needs_kafka("3.6")  # its leaders ask the coordinator whether a batch belongs to the transaction
async def test_a_batch_that_was_never_answered_is_refused_in_the_next_transaction(late):
    """Its number is the next one, so the epoch must tell: after a refusal, the producer starts again."""
    assert isinstance(await late.commit(b"1"), Committed)
    unanswered = late.batch(b"late")
    assert isinstance(await late.commit(b"x" * 2 * MAX_BYTES), Refused)

    async with late.publisher.transaction() as write:
        await late.open()
        assert await late.arrive(unanswered) is InvalidProducerEpoch
        await write([late.record(b"2")])

    assert await late.read() == [b"1", b"2"]
