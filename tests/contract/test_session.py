"""The contract of sessions, on simulated brokers and on real ones; the session is the same."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from uuid import uuid4

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka.commit_outcome import Committed, Rebalanced
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord, Position
from knowledgepulse_kafka.session import Session
from knowledgepulse_kafka.testing import Clients, SimTopic, new_cluster
from knowledgepulse_kafka.topic_reader import TopicReader
from knowledgepulse_kafka.transactional_publisher import TransactionalPublisher

PARTITIONS = 2
LIMIT = 120
VALUES = [b"%d" % number for number in range(10)]


class Simulated:
    """Simulated brokers."""

    source, target, group = "source", "target", "a-group"

    def __init__(self):
        cluster = new_cluster()
        for name in (self.source, self.target):
            cluster.create(SimTopic.new(name, PARTITIONS))
        self._clients = Clients(cluster)
        self.reader = self._clients.reader()

    def publisher(self):
        return self._clients.publisher(Config(), "source")

    def session(self):
        return self._clients.session(Config(group=self.group), [self.source], uuid4().hex)


class Kafka:
    """Real brokers."""

    def __init__(self, stream, reader):
        self.source, self.target = stream.settings.topics.raw, stream.settings.topics.contribute
        self.group = f"group-{uuid4().hex}"
        self._config = replace(stream.settings.kafka.client_config(), group=self.group)
        self.reader = reader

    def publisher(self):
        return TransactionalPublisher(self._config, uuid4().hex)

    def session(self):
        return Session(self._config, [self.source], uuid4().hex, decoded_bytes=10**6)


@pytest.fixture
async def stage(make_stream_if_real):
    """Brokers with a source of ten records."""
    async with AsyncExitStack() as stack:
        if make_stream_if_real is None:
            stage = Simulated()
        else:
            stream = await make_stream_if_real(PARTITIONS)
            reader = TopicReader(stream.settings.kafka.client_config(), 10**6)
            stage = Kafka(stream, await stack.enter_async_context(reader))
        async with stage.publisher() as publisher, publisher.transaction() as write:
            await write([_output(stage.source, n % PARTITIONS, value) for n, value in enumerate(VALUES)])
        yield stage


def _output(topic, partition, value):
    return OutputRecord(topic, partition, NO_TIMESTAMP, b"k", value, ())


async def copied(stage):
    """Return the values that consumers see in the target."""
    found = []
    for partition in range(PARTITIONS):
        offsets = await stage.reader.bounds(stage.target, partition)
        found += [record.value async for record in stage.reader.read(stage.target, partition, offsets)]
    return sorted(found)


async def polled(session):
    async with asyncio.timeout(LIMIT):
        while not (records := await session.poll()):
            pass
        return records


async def commit(stage, session, records):
    """Commit copies of records with the positions after them."""
    copies = [_output(stage.target, record.partition, record.value) for record in records]
    after = {(record.topic, record.partition): Position(record.offset + 1) for record in records}
    return await session.commit(copies, after)


async def copy_rest(stage, *sessions):
    """Let sessions take turns until the target has as many records as the source."""
    async with asyncio.timeout(LIMIT):
        while len(await copied(stage)) < len(VALUES):
            for session in sessions:
                if records := await session.poll():
                    await commit(stage, session, records)


async def test_a_session_goes_on_where_its_predecessor_committed(stage):
    async with stage.session() as session:
        records = (await polled(session))[:3]
        outcome = await commit(stage, session, records)
        assert isinstance(outcome, Committed)
        assert len(outcome.offsets) == len(records)
    async with stage.session() as session:
        await copy_rest(stage, session)
    assert await copied(stage) == VALUES


async def test_each_record_is_copied_once_over_a_rebalance(stage):
    """A member that has lost its partitions may not commit, or their owners would copy the records again."""
    async with stage.session() as first:
        records = await polled(first)
        async with stage.session() as second:
            async with asyncio.timeout(LIMIT):
                while first.is_current:
                    await asyncio.sleep(0.05)
            assert await commit(stage, first, records) == Rebalanced()
            await copy_rest(stage, first, second)
    assert await copied(stage) == VALUES


@asynccontextmanager
async def held_back(stage, partition, offset):
    """Hold a position of the group in an open transaction of someone else, which then commits it."""
    async with stage.publisher() as publisher, publisher._producer.transaction():
        held = {TopicPartition(stage.source, partition): OffsetAndMetadata(offset, "")}
        await publisher._producer.send_group_offsets(held, GroupMetadata(stage.group))
        yield


async def test_a_position_that_someone_else_holds_back_keeps_only_its_own_partition(stage):
    """No partition was read, without a word, for as long as the transaction was open."""
    async with AsyncExitStack() as stack:
        async with held_back(stage, 0, 2):
            session = await stack.enter_async_context(stage.session())
            records = await polled(session)
            assert {record.partition for record in records} == {1}
            await commit(stage, session, records)
            assert session.not_ready[0].startswith(f"not read yet: {stage.source}/0")
        rest = []
        while len(rest) < 3:
            rest += [place for place in await polled(session) if place.partition == 0]
        assert [record.offset for record in rest] == [2, 3, 4]
        assert session.not_ready == []
