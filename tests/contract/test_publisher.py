"""The contract of transactions of outputs: on simulated brokers, on a real one, and in the tests of lanes."""

import asyncio
import time
from collections import Counter
from functools import partial
from itertools import product
from typing import ClassVar, NamedTuple
from uuid import uuid4

import pytest
from aiokafka.admin import NewTopic

from knowledgepulse_kafka.commit_outcome import Committed, Refused
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.errors import TimestampError, TooLargeError, UnacceptableError
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.records import NO_TIMESTAMP, UNTIMED, Headers, OutputRecord, Position
from knowledgepulse_kafka.testing import Clients, SimTopic, new_cluster
from knowledgepulse_kafka.topic_limits import TopicLimits
from knowledgepulse_kafka.topics import Topic
from knowledgepulse_kafka.transactional_publisher import TransactionalPublisher
from knowledgepulse_worker.settings import KafkaSettings, Settings
from support.kafka_release import needs_kafka
from support.memory_publisher import MemoryPublisher
from support.streams import ARRIVAL_LIMIT, Stream, admin_of

PARTITIONS = 3
LARGE = b"x" * 15_000
NOW = time.time_ns() // 1_000_000  # a record that is older than its topic's retention is deleted
OLD = NOW - 7_200_000


class Read(NamedTuple):
    """A record as a consumer of committed records sees it."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def publishing(publisher, topic, group):
    """Return a publisher's commits in a topic, as a group's client that is no member."""

    async def publish(records, positions, alone=()):
        places = {(topic, partition): position for partition, position in positions.items()}
        return await publisher.commit(records, places, GroupMetadata(group), alone)

    return publish


def refused(outcome):
    """Return the error of an outcome, which is a refusal."""
    assert isinstance(outcome, Refused)
    return outcome.error


class Simulated:
    """The worker's publisher on the simulated client of simulated brokers."""

    KINDS: ClassVar = {
        "one LARGE record at a time": {"max_bytes": 20_000},
        "small records": {"max_bytes": 1000},
        "records of the last hour": {"max_age_ms": 3_600_000},
        "records with a key": {"is_compacted": True},
    }

    def __init__(self):
        self._cluster = new_cluster()
        self._cluster.epoch = NOW / 1000 - self._cluster.loop.time()
        self._cluster.create(SimTopic.new("raw", PARTITIONS))
        self._publisher = Clients(self._cluster).publisher(Config(), "id", batch_bytes=10**5)
        self.publish = publishing(self._publisher, "raw", "group")

    async def __aenter__(self):
        await self._publisher.__aenter__()
        return self

    async def __aexit__(self, *_):
        await self._publisher.__aexit__()

    async def topic(self, takes="anything"):
        topic = SimTopic.new(uuid4().hex, PARTITIONS, **self.KINDS.get(takes, {}))
        self._cluster.create(topic)
        return topic.name

    async def create_again(self, topic):
        self._cluster.create(SimTopic.new(topic, PARTITIONS))

    async def read(self, topic):
        await self._transactions_ended()
        return [
            Read(partition, record.timestamp_ms, record.key, record.value, record.headers)
            for partition, records in self._cluster.committed_records(topic).items()
            for record in records
        ]

    async def committed(self):
        await self._transactions_ended()
        return {at[1]: position.offset for at, position in self._cluster.group.committed.items()}

    async def _transactions_ended(self):
        """Wait for the markers of a transaction, without which nobody sees it."""
        while not self._cluster.transactions.have_ended:
            await asyncio.sleep(0.001)


class Kafka:
    """The worker's publisher on a real broker."""

    KINDS: ClassVar = {
        "one LARGE record at a time": {"max.message.bytes": "20000"},
        "small records": {"max.message.bytes": "1000"},
        "records of the last hour": {"message.timestamp.before.max.ms": "3600000"},
        "records with a key": {"cleanup.policy": "compact"},
    }

    def __init__(self, servers, folder):
        self._kafka = KafkaSettings(bootstrap_servers=servers)
        self._group = f"group-{uuid4().hex}"
        self._publisher = TransactionalPublisher(self._kafka.client_config(), uuid4().hex, 10**5)
        self._stream = Stream(Settings(kafka=self._kafka.model_dump()), folder)

    async def __aenter__(self):
        self._raw = await self.topic()
        await self._publisher.__aenter__()
        self.publish = publishing(self._publisher, self._raw, self._group)
        return self

    async def __aexit__(self, *_):
        await self._publisher.__aexit__()

    async def topic(self, takes="anything"):
        name = uuid4().hex
        async with admin_of(self._kafka.bootstrap_servers) as admin:
            config = self.KINDS.get(takes, {})
            await admin.create_topics([NewTopic(name, PARTITIONS, 1, topic_configs=config)])
        return name

    async def create_again(self, topic):
        async with admin_of(self._kafka.bootstrap_servers) as admin:
            await admin.delete_topics([topic])
            async with asyncio.timeout(ARRIVAL_LIMIT):
                while topic in await admin.list_topics():
                    await asyncio.sleep(0.1)
            await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])

    async def read(self, topic):
        return [
            Read(record.partition, record.timestamp, record.key, record.value, tuple(record.headers))
            for record in await self._stream.read(topic)
        ]

    async def committed(self):
        async with admin_of(self._kafka.bootstrap_servers) as admin:
            found = await admin.list_consumer_group_offsets(self._group)
        return {at.partition: position.offset for at, position in found.items()}


class Memory:
    """What stands for the publisher in the tests of lanes; it refuses by kind of topic, not by size."""

    def __init__(self):
        self._publisher = MemoryPublisher(PARTITIONS)
        self.publish = self._publisher.publish
        self._kinds = {
            "one LARGE record at a time": self._publisher.refused_in_batch,
            "small records": self._publisher.refused,
            "records with a key": self._publisher.refusing_keyless,
            "anything": set(),
        }

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def topic(self, takes="anything"):
        name = uuid4().hex
        self._kinds[takes].add(name)
        return name

    async def read(self, topic):
        return [
            Read(record.partition, record.timestamp_ms, record.key, record.value, record.headers)
            for record in self._publisher.records(topic)
        ]

    async def committed(self):
        return {partition: position.offset for partition, position in self._publisher.positions.items()}


BROKERS = ("simulated", pytest.param("kafka", marks=pytest.mark.integration))
on_brokers = pytest.mark.parametrize("implementation", BROKERS, indirect=True)
"""For what brokers do with times, or with topics that change."""


@pytest.fixture(params=["memory", *BROKERS])
def implementation(request):
    """Where a test runs."""
    return request.param


@pytest.fixture
def servers(request, implementation):
    """Where the broker is; None where there is none to be."""
    return request.getfixturevalue("broker").bootstrap_servers if implementation == "kafka" else None


@pytest.fixture
async def stage(implementation, servers, tmp_path):
    made = {"memory": Memory, "simulated": Simulated, "kafka": partial(Kafka, servers, tmp_path)}
    async with made[implementation]() as stage:
        yield stage


def record(topic, value=b"v", key=b"k", partition=0, headers=(), timestamp_ms=NOW):
    return OutputRecord(topic, partition, timestamp_ms, key, value, headers)


async def test_records_get_their_partition_s_offsets_in_order(stage):
    topic = await stage.topic()
    places = [(number % PARTITIONS, b"%d" % number) for number in range(60)]

    offsets = await stage.publish(
        [record(topic, value, partition=partition) for partition, value in places], {0: Position(1)}
    )

    assert offsets == Committed([number // PARTITIONS for number in range(60)])
    read = [(record.partition, record.value) for record in await stage.read(topic)]
    assert sorted(read, key=lambda place: (place[0], int(place[1]))) == sorted(
        places, key=lambda place: (place[0], int(place[1]))
    )


async def test_positions_are_committed_with_the_records(stage):
    topic = await stage.topic()

    await stage.publish([record(topic)], {0: Position(5, b"\x01" * 16), 2: Position(7)})
    await stage.publish([record(topic)], {0: Position(9)})

    async with asyncio.timeout(ARRIVAL_LIMIT):
        while await stage.committed() != {0: 9, 2: 7}:  # once the markers are written
            await asyncio.sleep(0.01)


@on_brokers
async def test_a_topic_that_is_created_again_takes_a_producer_s_next_records(stage):
    """Its logs do not know the producer, and so expect no number of it."""
    topic = await stage.topic()
    await stage.publish([record(topic, b"former")], {0: Position(1)})
    await stage.create_again(topic)

    for value in (b"1", b"2"):
        assert isinstance(await stage.publish([record(topic, value)], {0: Position(2)}), Committed)

    assert [record.value for record in await stage.read(topic)] == [b"1", b"2"]


@pytest.mark.parametrize("partition", [0, 2, None])
async def test_key_value_timestamp_and_headers_arrive_unchanged(partition, stage):
    topic = await stage.topic()
    headers = (("a", b"1"), ("b", None), ("a", b"\xff"), ("a", b"1"), ("", b""))
    keys, values = (b"k", None, b"", b"\xff\x00"), (b"v", None, b"", b"\xff")
    sent = list(product(keys, values))

    await stage.publish(
        [record(topic, value, key, partition, headers) for key, value in sent], {0: Position(1)}
    )

    read = await stage.read(topic)
    assert Counter(found._replace(partition=0) for found in read) == Counter(
        Read(0, NOW, key, value, headers) for key, value in sent
    )
    assert partition is None or {found.partition for found in read} == {partition}


async def test_a_key_without_a_partition_number_goes_to_one_partition_also_alone(stage):
    topic = await stage.topic()
    records = [record(topic, key=b"%d" % (number % 20), partition=None) for number in range(40)]

    await stage.publish(records, {0: Position(1)}, records[20:])

    places = Counter((record.key, record.partition) for record in await stage.read(topic))
    assert set(places.values()) == {2}
    assert {partition for _, partition in places} == set(range(PARTITIONS))


async def test_a_record_larger_than_a_batch_arrives(stage):
    topic = await stage.topic()
    value = b"x" * 400_000

    await stage.publish([record(topic, b"before"), record(topic, value)], {0: Position(1)})

    assert [record.value for record in await stage.read(topic)] == [b"before", value]


async def test_a_refused_batch_aborts_everything_and_its_records_are_accepted_alone(stage):
    """Only the records of that batch are suspected."""
    topic, other = await stage.topic("one LARGE record at a time"), await stage.topic()
    suspects = [record(topic, LARGE, key=b"%d" % number) for number in range(3)]
    records = [record(other), *suspects]

    error = refused(await stage.publish(records, {0: Position(1)}))
    (refusal,) = error.refusals
    assert isinstance(refusal.cause, TooLargeError)
    assert {record.key for record in refusal.records} <= {suspect.key for suspect in suspects}
    assert (await stage.read(topic), await stage.read(other), await stage.committed()) == ([], [], {})

    await stage.publish(records, {0: Position(1)}, suspects)

    assert [record.key for record in await stage.read(topic)] == [b"0", b"1", b"2"]
    assert len(await stage.read(other)) == 1


async def test_a_record_too_large_by_itself_is_refused_and_its_error_has_no_content(stage):
    topic = await stage.topic("small records")
    large = record(topic, LARGE)

    error = refused(await stage.publish([large], {0: Position(1)}, [large]))

    (refusal,) = error.refusals
    assert refusal.records == [large]
    assert "xxx" not in str(error)


async def test_a_transaction_tells_the_refusals_of_all_partitions(stage):
    """Otherwise each partition's would cost another transaction."""
    topic, other = await stage.topic("small records"), await stage.topic()
    large = [record(topic, LARGE, partition=number) for number in range(PARTITIONS)]

    error = refused(await stage.publish([*large, record(other)], {0: Position(1)}, large))
    found = {record.partition for refusal in error.refusals for record in refusal.records}
    assert found == set(range(PARTITIONS))

    await stage.publish([record(other)], {0: Position(1)})
    assert len(await stage.read(other)) == 1


async def test_a_compacted_topic_refuses_a_record_without_a_key(stage):
    topic = await stage.topic("records with a key")
    keyless = record(topic, key=None)
    problem = TopicLimits({topic: Topic(topic, PARTITIONS, 10**6, "compact")}).problem_of(keyless)

    error = refused(await stage.publish([keyless], {0: Position(1)}))

    (refusal,) = error.refusals
    assert isinstance(refusal.cause, UnacceptableError)
    assert type(refusal.cause) is type(problem)
    assert await stage.read(topic) == []


@on_brokers
@needs_kafka("3.6")  # message.timestamp.before.max.ms
@pytest.mark.parametrize(
    ("timestamp", "is_accepted"),
    [
        pytest.param(OLD, False, id="old"),
        pytest.param(NO_TIMESTAMP, True, id="none"),
        pytest.param(UNTIMED, True, id="untimed"),
    ],
)
async def test_a_timestamp_that_the_topic_refuses_is_a_timestamp_error(timestamp, is_accepted, stage):
    topic = await stage.topic("records of the last hour")
    sent = record(topic, timestamp_ms=timestamp)

    if is_accepted:
        await stage.publish([sent], {0: Position(1)})
    else:
        error = refused(await stage.publish([sent], {0: Position(1)}))
        (refusal,) = error.refusals
        assert isinstance(refusal.cause, TimestampError)

    assert len(await stage.read(topic)) == is_accepted


@pytest.mark.integration
@pytest.mark.parametrize("implementation", ["kafka"], indirect=True)
async def test_the_size_that_a_topic_takes_is_told_to_the_byte(stage):
    """Otherwise a trace that fits would become a dead letter, or a transaction be aborted."""
    name = await stage.topic("small records")
    limits = TopicLimits({name: Topic(name, PARTITIONS, 1000)})
    for size in range(900, 1000, 7):
        sent = record(name, b"x" * size, headers=(("h", b"1"),))
        is_refused = isinstance(await stage.publish([sent], {0: Position(1)}), Refused)

        assert isinstance(limits.problem_of(sent), TooLargeError) == is_refused, size
