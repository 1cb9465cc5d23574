"""The contract of transactions, on simulated brokers and on real ones; the worker's publisher is the same."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from uuid import uuid4

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka import transactional_publisher
from knowledgepulse_kafka.commit_outcome import Committed, Rebalanced
from knowledgepulse_kafka.errors import DeliveryError
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord, Position
from support.stages import PARTITIONS
from support.waits import eventually


@pytest.fixture
def name():
    """A transactional id."""
    return f"transactions-{uuid4().hex}"


@pytest.fixture
async def join(stage):
    """Let another member join the group, and wait until a rebalance has assigned it partitions."""
    async with AsyncExitStack() as stack:

        async def join():
            member = stage.new_member()
            await member.start()
            stack.push_async_callback(member.stop)
            member.subscribe([stage.source])
            await eventually(member.assignment)
            return member

        yield join


def records(stage, *values):
    """Return a record for each value; the partitions take turns."""
    return [
        OutputRecord(stage.source, number % PARTITIONS, NO_TIMESTAMP, b"k", value, ())
        for number, value in enumerate(values)
    ]


async def test_records_and_offsets_of_a_transaction_are_visible_together_or_never(stage, name):
    async with stage.publisher(name) as publisher:

        async def fail():
            async with publisher.transaction() as write:
                await write(records(stage, b"lost", b"lost too"))
                await publisher._producer.send_group_offsets(
                    {TopicPartition(stage.source, 0): OffsetAndMetadata(5, "")}, group
                )
                raise ZeroDivisionError

        group = GroupMetadata(stage.group)
        with pytest.raises(ZeroDivisionError):
            await fail()
        await publisher.commit(records(stage, b"1", b"2"), {(stage.source, 1): Position(7)}, group)
    async with stage.publisher(name):  # once the markers are written
        assert await stage.values(stage.source) == [b"1", b"2"]
        assert await stage.committed() == [0, 7]


async def test_brokers_need_not_refuse_records_for_now_to_verify_the_positions(stage, name, caplog):
    """They verify one request of a transaction at a time; a refused one waited for 100 ms (KIP-890)."""
    async with stage.publisher(name) as publisher:
        for number in range(40):
            position = {(stage.source, 0): Position(number)}
            await publisher.commit(records(stage, b"1", b"2"), position, GroupMetadata(stage.group))
    assert "NotEnoughReplicas" not in caplog.text


async def test_an_open_transaction_holds_readers_back(stage, name):
    async with stage.publisher(name) as publisher:
        async with publisher.transaction() as write:
            await write(records(stage, b"1", b"2"))
            assert await stage.values(stage.source) == []
            appended = await stage.reader.appended(stage.source, [0, 1])
            assert [*map(len, appended.values())] == [1, 1]

        async def both():
            return await stage.values(stage.source) == [b"1", b"2"]

        await eventually(both)


async def test_whoever_takes_an_id_over_aborts_what_its_predecessor_left_open(stage, name, caplog):
    async def be_replaced(former):
        async with former.transaction() as write:
            await write(records(stage, b"former"))
            await former._producer.send_group_offsets(
                {TopicPartition(stage.source, 0): OffsetAndMetadata(5, "")}, GroupMetadata(stage.group)
            )
            async with stage.publisher(name) as latter, latter.transaction() as write_as_latter:
                await write_as_latter(records(stage, b"latter"))

    async with stage.publisher(name) as former:
        with pytest.raises(DeliveryError, match="took over"):
            await be_replaced(former)
        async with stage.publisher(name):
            assert await stage.values(stage.source) == [b"latter"]
            assert await stage.committed() == [0, 0]
    del former
    gc.collect()
    assert "never retrieved" not in caplog.text, "asyncio logs an error with its traceback"


async def test_a_transaction_that_takes_too_long_is_aborted(stage, name, monkeypatch):
    monkeypatch.setattr(transactional_publisher, "TRANSACTION_TIMEOUT_MS", 1000)

    async def is_aborted():
        return len(await stage.reader.bounds(stage.source, 0)) > 0

    async def take_too_long(publisher):
        async with publisher.transaction() as write:
            await write(records(stage, b"1"))
            await eventually(is_aborted)
            await write(records(stage, b"2"))

    async with stage.publisher(name) as publisher:
        with pytest.raises(DeliveryError):
            await take_too_long(publisher)
    assert await stage.values(stage.source) == []


async def test_a_member_of_a_past_generation_publishes_and_commits_nothing(stage, name, join):
    """Its partitions may have other owners; the client goes on, as the member that it has become."""
    member = await join()
    former = member.group

    async def publish(value, group):
        return await publisher.commit(records(stage, value), {(stage.source, 0): Position(5)}, group)

    async with stage.publisher(name) as publisher:
        assert isinstance(await publish(b"as a member", former), Committed)
        await join()
        await eventually(lambda: member.group != former)
        assert isinstance(await publish(b"as a former member", former), Rebalanced)
        assert isinstance(await publish(b"again", member.group), Committed)
    async with stage.publisher(name):  # once the markers are written
        assert await stage.values(stage.source) == [b"again", b"as a member"]


async def test_a_group_s_positions_wait_for_a_transaction_that_has_them(stage, name, join):
    """Whoever reads the positions before would begin again at what the transaction then commits."""
    member = await join()
    at = TopicPartition(stage.source, 0)
    async with stage.publisher(name) as publisher:
        producer = publisher._producer
        async with producer.transaction():
            await publisher._write(records(stage, b"1"))
            await producer.send_group_offsets({at: OffsetAndMetadata(1, "")}, member.group)
            asked = asyncio.create_task(member.committed([at]))
            await asyncio.wait([asked], timeout=1)
        assert (await asked)[at].offset == 1


async def test_the_positions_of_other_partitions_do_not_wait_for_that_transaction(stage, name, join):
    """A stranger's transaction held back the positions of all partitions, and no record was scored."""
    member = await join()
    held, other = (TopicPartition(stage.source, number) for number in (0, 1))
    positions = member.stable_positions([held, other])
    async with stage.publisher(name) as publisher:
        producer = publisher._producer
        async with producer.transaction():
            await publisher._write(records(stage, b"1"))
            await producer.send_group_offsets({held: OffsetAndMetadata(1, "")}, member.group)
            assert await anext(positions) == {other: None}
    assert [position async for position in positions] == [{held: OffsetAndMetadata(1, "")}]
