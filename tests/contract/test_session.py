"""The contract of sessions, on simulated brokers and on real ones; the session is the same."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import uuid4

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka.commit_outcome import Committed, Rebalanced
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord, Position
from support.stages import PARTITIONS

LIMIT = 120
VALUES = [b"%d" % number for number in range(10)]


@pytest.fixture(autouse=True)
async def _filled(stage):
    """Let the source have ten records."""
    async with stage.publisher(uuid4().hex) as publisher, publisher.transaction() as write:
        await write([_output(stage.source, n % PARTITIONS, value) for n, value in enumerate(VALUES)])


def _output(topic, partition, value):
    return OutputRecord(topic, partition, NO_TIMESTAMP, b"k", value, ())


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
        while len(await stage.values(stage.target)) < len(VALUES):
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
    assert await stage.values(stage.target) == VALUES


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
    assert await stage.values(stage.target) == VALUES


@asynccontextmanager
async def held_back(stage, partition, offset):
    """Hold a position of the group in an open transaction of someone else, which then commits it."""
    async with stage.publisher(uuid4().hex) as publisher, publisher._producer.transaction():
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
