"""Assigned partitions are read one by one, as soon as each may be."""

import asyncio

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka import partition_starts
from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.partition_starts import PartitionStarts
from knowledgepulse_kafka.session import Rebalances
from knowledgepulse_kafka.testing import SimTopic
from knowledgepulse_kafka.wait import Wait
from support.assigned_member import AssignedMember, swift_cluster

NAME, PARTITIONS = "spans", 8
WAIT = Wait("OffsetFetch", "spans/1", error="UNSTABLE_OFFSET_COMMIT (88)")


class Listener:
    """Starts what is assigned."""

    def __init__(self, starts):
        self._starts = starts

    async def on_partitions_revoked(self, _):
        await self._starts.end()

    async def on_partitions_assigned(self, assigned):
        self._starts.begin(assigned)


@pytest.fixture
async def cluster():
    cluster = swift_cluster()
    cluster.create(SimTopic.new(NAME, PARTITIONS))
    return cluster


@pytest.fixture
async def member(cluster, monkeypatch):
    member = AssignedMember(cluster, NAME)
    monkeypatch.setattr(member.waits, "current", lambda _: [WAIT])
    yield member
    await member.stop()


async def assigned(member):
    """Return the starts of all partitions, after all but the unstable ones are read."""
    starts = PartitionStarts(member, Rebalances().recover)
    member.subscribe(topics=[NAME], listener=Listener(starts))
    await member.rebalance(range(PARTITIONS))
    while len(starts.reading) < PARTITIONS - len(member.unstable):
        await asyncio.sleep(0)
    return starts


async def test_partitions_start_where_the_group_has_committed_else_at_the_first_record(cluster, member):
    logs = cluster.topics[NAME].logs
    for log in logs[:2]:
        log.skip(5)
    cluster.group.committed[NAME, 0] = OffsetAndMetadata(5, "")
    logs[1].delete_before(3)
    starts = await assigned(member)
    positions = [await member.position(TopicPartition(NAME, number)) for number in range(3)]
    assert (positions, member.paused(), starts.not_ready, starts.waits) == ([5, 3, 0], set(), [], {})


async def test_what_is_not_read_is_named_with_what_it_waits_for(member, caplog, monkeypatch):
    monkeypatch.setattr(partition_starts, "_TOLD_LIMIT", 0)
    member.unstable = set(range(PARTITIONS))
    starts = await assigned(member)
    while not caplog.messages:
        await asyncio.sleep(0)

    names = "spans/0, spans/1, spans/2, spans/3, spans/4, 3 more"
    reason = f"not read yet: {names}; OffsetFetch to spans/1: UNSTABLE_OFFSET_COMMIT (88)"
    assert (starts.not_ready, caplog.messages, [*starts.waits]) == ([reason], [reason], [WAIT])
    assert member.paused() == member.assignment()
    await starts.end()


async def test_without_partitions_the_group_is_waited_for(member):
    starts = PartitionStarts(member, Rebalances().recover)
    reason = "partitions are not assigned yet; OffsetFetch to spans/1: UNSTABLE_OFFSET_COMMIT (88)"
    assert starts.not_ready == [reason]


async def test_a_rebalance_gives_up_what_has_not_started(member):
    """Otherwise, a partition would be read that another member owns."""
    member.unstable = {1}
    starts = await assigned(member)
    await member.rebalance([0])
    member.unstable.clear()
    while starts.not_ready:
        await asyncio.sleep(0)
    assert starts.reading == {TopicPartition(NAME, 0)}


async def test_a_partition_that_cannot_start_is_the_reader_s_error(member):
    asked = asyncio.Event()

    async def recover(_positions, _begin):
        asked.set()
        raise TopicError("the log cannot be read")

    starts = PartitionStarts(member, recover)
    member.subscribe(topics=[NAME], listener=Listener(starts))
    starts.check()
    await member.rebalance([0])
    await asked.wait()
    for _ in range(3):
        await asyncio.sleep(0)  # the task ends
    with pytest.raises(TopicError, match="the log cannot be read"):
        starts.check()
