"""The contract of every group member, on simulated brokers and on a real one."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from aiokafka import AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import IllegalStateError
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.group_member import FETCH_BYTES, GroupMember
from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_kafka.testing import Clients, SimTopic, new_cluster
from knowledgepulse_kafka.testing.member import FETCH_COUNT
from knowledgepulse_kafka.topic_id import TopicIds
from support.streams import Message
from support.waits import eventually

PARTITIONS = 2
LIMIT = 120


class Listener(ConsumerRebalanceListener):
    """Records the partitions that rebalances revoke and assign."""

    def __init__(self):
        self.calls = []
        self.assigned = asyncio.Event()

    async def on_partitions_revoked(self, revoked):
        self.calls.append(("revoked", {place.partition for place in revoked}))

    async def on_partitions_assigned(self, assigned):
        self.calls.append(("assigned", {place.partition for place in assigned}))
        self.assigned.set()


class Simulated:
    """The simulated client of simulated brokers."""

    name = "a-topic"

    def __init__(self):
        self._cluster = new_cluster()
        self._topic = SimTopic.new(self.name, PARTITIONS, b"the first")
        self._cluster.create(self._topic)

    def new_member(self):
        return Clients(self._cluster).member(Config(), [self.name], 10)

    async def publish(self, partition, *values):
        records = [OutputRecord(self.name, partition, 0, None, value, ()) for value in values]
        self._topic.logs[partition].append(records, 0)

    async def publish_in_open_transaction(self, partition, value):
        self._topic.logs[partition].open_from = self._topic.logs[partition].end
        await self.publish(partition, value)

    async def delete_before(self, partition, offset):
        self._topic.logs[partition].delete_before(offset)

    async def recreate(self):
        self._topic = SimTopic.new(self.name, PARTITIONS, b"the next")
        self._cluster.create(self._topic)

    async def topic_id(self):
        return self._topic.id

    async def commit(self, positions):
        for at, position in positions.items():
            self._cluster.group.committed[at.topic, at.partition] = position


class Kafka:
    """The real member, with a topic on a real broker."""

    def __init__(self, stream, stack):
        self._stream = stream
        self._stack = stack
        self.name = stream.settings.topics.raw

    def new_member(self):
        kafka = self._stream.settings.kafka
        return GroupMember(kafka.client_config(), 10**6, rebalance_timeout=10)

    async def publish(self, partition, *values):
        await self._stream.publish(Message(value, partition=partition) for value in values)

    async def publish_in_open_transaction(self, partition, value):
        servers = self._stream.settings.kafka.bootstrap_servers
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=self.name)
        await producer.start()
        self._stack.push_async_callback(producer.stop)
        await producer.begin_transaction()
        self._stack.push_async_callback(producer.abort_transaction)
        await producer.send_and_wait(self.name, value, partition=partition)

    async def delete_before(self, partition, offset):
        await self._stream.delete_records(self.name, partition, offset)

    async def recreate(self):
        await self._stream.recreate_topic(self.name, PARTITIONS)

    async def topic_id(self):
        ids = TopicIds(self._stream.settings.kafka.client_config(), self.name)
        await ids.start()
        try:
            return await ids.current(range(PARTITIONS))
        finally:
            await ids.stop()

    async def commit(self, positions):
        kafka = self._stream.settings.kafka
        async with (
            AIOKafkaProducer(
                bootstrap_servers=kafka.bootstrap_servers, transactional_id=f"{self.name}-commit"
            ) as producer,
            producer.transaction(),
        ):
            await producer.send_offsets_to_transaction(positions, kafka.group)


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def stage(implementation, make_stream_if_real, stack):
    if implementation == "kafka":
        return Kafka(await make_stream_if_real(PARTITIONS), stack)
    return Simulated()


@pytest.fixture
def at(stage):
    return [TopicPartition(stage.name, number) for number in range(PARTITIONS)]


@pytest.fixture
def join(stage, stack):
    """Start a member that owns every partition."""

    async def join(listener=None):
        listener = listener or Listener()
        member = stage.new_member()
        await member.start()
        stack.push_async_callback(member.stop)
        member.subscribe(topics={stage.name}, listener=listener)
        async with asyncio.timeout(LIMIT):
            await listener.assigned.wait()
        return member

    return join


async def fetch(member, count):
    """Return the values of the next records, by partition."""
    values = {}
    async with asyncio.timeout(LIMIT):
        while sum(map(len, values.values())) < count:
            for tp, records in (await member.getmany(timeout_ms=100)).items():
                values.setdefault(tp.partition, []).extend(record.value for record in records)
    return values


async def test_partitions_are_assigned_after_the_previous_ones_are_revoked(stage, join):
    listener = Listener()

    member = await join(listener)

    assert listener.calls == [("revoked", set()), ("assigned", {0, 1})]
    assert {tp.partition for tp in member.assignment()} == {0, 1}
    assert member.partitions_for_topic(stage.name) == {0, 1}
    assert member.partitions_for_topic("no-such-topic") is None


async def test_it_is_a_member_until_it_stops(stage, join):
    member = await join()
    assert member.is_member
    member.check_membership()

    await member.stop()
    assert not member.is_member


async def test_records_arrive_in_offset_order(stage, join):
    await stage.publish(0, b"a", b"b", b"c", b"d")
    await stage.publish(1, b"x")

    member = await join()

    assert await fetch(member, 5) == {0: [b"a", b"b", b"c", b"d"], 1: [b"x"]}


async def test_a_paused_partition_is_not_fetched_and_resumes_where_it_was(stage, join, at):
    await stage.publish(0, b"a")
    member = await join()
    assert await fetch(member, 1) == {0: [b"a"]}

    member.pause(at[0])
    await stage.publish(0, b"b")
    await stage.publish(1, b"x")
    assert await fetch(member, 1) == {1: [b"x"]}
    assert await member.position(at[0]) == 1

    member.resume(at[0])
    assert await fetch(member, 1) == {0: [b"b"]}


async def test_seeking_sets_the_offset_that_is_fetched_next(stage, join, at):
    await stage.publish(0, b"a", b"b", b"c")
    member = await join()
    await fetch(member, 3)

    member.seek(at[0], 1)
    assert await member.position(at[0]) == 1
    assert await fetch(member, 2) == {0: [b"b", b"c"]}

    await member.seek_to_beginning(at[0])
    assert await fetch(member, 3) == {0: [b"a", b"b", b"c"]}


async def test_what_was_fetched_for_an_assignment_is_not_returned_in_the_next(stage, join, at):
    """The source relies on it: a fetch may wait for a whole rebalance."""
    listener = Listener()
    member = await join(listener)
    await stage.publish(0, b"a")
    await stage.publish(1, b"x")
    await fetch(member, 2)
    await stage.publish(0, b"b")
    await stage.publish(1, b"y")
    await eventually(lambda: [member.highwater(place) for place in at] == [2, 2])

    listener.assigned.clear()
    await join()
    async with asyncio.timeout(LIMIT):
        await listener.assigned.wait()
    owned = {place.partition for place in member.assignment()}

    assert await fetch(member, 2 * len(owned)) == {
        place: [[b"a", b"b"], [b"x", b"y"]][place] for place in owned
    }


async def test_the_beginning_moves_as_records_are_deleted(stage, join, at):
    await stage.publish(0, b"a", b"b", b"c")
    member = await join()
    await stage.delete_before(0, 2)

    assert await member.beginning_offsets([at[0]]) == {at[0]: 2}
    await member.seek_to_beginning(at[0])
    assert await fetch(member, 1) == {0: [b"c"]}


async def test_a_group_has_no_position_before_its_first_commit_and_a_successor_resumes_there(stage, join, at):
    await stage.publish(0, b"a", b"b", b"c")
    member = await join()
    assert await member.committed([at[0]]) == {}

    position = OffsetAndMetadata(2, "a note")
    await stage.commit({at[0]: position})
    assert await member.committed([at[0]]) == {at[0]: position}
    await member.stop()

    successor = await join()
    assert await successor.committed(at[:1]) == {at[0]: position}
    assert await fetch(successor, 1) == {0: [b"c"]}


async def test_the_epoch_of_the_only_leader_ends_with_the_log(stage, join, at):
    await stage.publish(0, b"a", b"b", b"c")

    member = await join()

    assert await member.epoch_ends(dict.fromkeys(at, 0)) == dict(zip(at, [3, 0], strict=True))


async def test_an_open_transaction_counts_towards_the_high_watermark_and_is_not_fetched(stage, join, at):
    await stage.publish(0, b"a")
    await stage.publish_in_open_transaction(0, b"b")
    member = await join()

    assert await fetch(member, 1) == {0: [b"a"]}
    await fetch_nothing(member)

    assert member.highwater(at[0]) == 2
    assert member.last_stable_offset(at[0]) == 1
    assert await member.position(at[0]) == 1
    assert not member.has_more(at[0])


async def test_a_member_knows_of_records_behind_those_that_it_has(stage, join, at):
    """They are a backlog, which commits may wait for."""
    for _ in range(FETCH_COUNT + 1):  # each in a batch of its own
        await stage.publish(0, bytes(FETCH_BYTES - 1000))
    member = await join()

    assert not member.has_more(at[0])
    first, seen = [*(await until_fetched(member))[at[0]]], []
    seen.append(member.has_more(at[0]))
    while len(first) < FETCH_COUNT + 1:
        first += (await until_fetched(member))[at[0]]
        seen.append(member.has_more(at[0]))

    assert seen == [*[True] * (len(seen) - 1), False]
    assert len(seen) > 1


async def test_records_that_are_fetched_by_id_are_those_of_one_topic(stage, join):
    """What is read by name goes on in a topic that was created again, as soon as that has as many records."""
    await stage.publish(0, b"a", b"b", b"c")
    member = await join()
    member.read_by_id(stage.name, await stage.topic_id())
    assert await fetch(member, 3) == {0: [b"a", b"b", b"c"]}
    assert member.is_read_by_id

    await stage.recreate()
    await stage.publish(0, b"1", b"2", b"3", b"4")

    async with asyncio.timeout(LIMIT):
        while not member.has_lost_topic:
            assert not await member.getmany(timeout_ms=100)
    await fetch_nothing(member)
    member.read_by_id(stage.name, await stage.topic_id())
    assert not member.has_lost_topic
    assert (await fetch(member, 1))[0][-1] == b"4"  # a group whose topic was missing may begin anew


async def test_what_changes_between_fetches_by_id_is_told(stage, join, at):
    """A broker remembers the fetches of a session: only what has changed is asked for and answered."""
    member = await join()
    member.read_by_id(stage.name, await stage.topic_id())
    await stage.publish(0, b"a")
    assert await fetch(member, 1) == {0: [b"a"]}
    member.pause(at[0])
    await stage.publish(0, b"b")
    await stage.publish(1, b"x", b"y")

    assert await fetch(member, 2) == {1: [b"x", b"y"]}
    await fetch_nothing(member)

    member.seek(at[1], 1)
    assert await fetch(member, 1) == {1: [b"y"]}
    member.resume(at[0])
    assert await fetch(member, 1) == {0: [b"b"]}
    answered = member.last_poll_timestamp(at[1])
    await eventually(lambda: member.last_poll_timestamp(at[1]) != answered)


async def until_fetched(member):
    while not (fetched := await member.getmany(timeout_ms=100)):
        pass
    return fetched


async def fetch_nothing(member):
    for _ in range(3):
        assert not await member.getmany(timeout_ms=100)


async def test_the_time_of_the_broker_s_last_response_is_known(stage, join, at):
    await stage.publish(0, b"a")
    member = await join()
    await fetch(member, 1)

    await eventually(lambda: member.last_poll_timestamp(at[0]))


@pytest.mark.parametrize("method", ["pause", "resume"])
async def test_an_unassigned_partition_cannot_be_paused_or_resumed(stage, join, method):
    member = await join()

    with pytest.raises(IllegalStateError):
        getattr(member, method)(TopicPartition(stage.name, PARTITIONS))


async def test_an_unassigned_partition_cannot_be_sought(stage, join):
    member = await join()
    other = TopicPartition(stage.name, PARTITIONS)

    with pytest.raises(IllegalStateError):
        member.seek(other, 0)
