"""The contract of every publisher, in memory, on simulated brokers and on a real one."""

import asyncio
import math
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar, NamedTuple
from uuid import uuid4

import pytest
from aiokafka.admin import NewTopic

from fakes.memory_publisher import MemoryPublisher
from knowledgepulse_worker.errors import DeliveryError, TimestampError, TooLargeError
from knowledgepulse_worker.kafka.lease import Lease
from knowledgepulse_worker.kafka.output_publisher import OutputPublisher
from knowledgepulse_worker.records.record import NO_TIMESTAMP, Headers, OutputRecord
from knowledgepulse_worker.settings import KafkaSettings, Settings
from simulation.brokers import SimTopic, new_cluster
from simulation.producer import SimPublisher
from support.streams import Stream, admin_of

PARTITIONS = 3
LARGE = b"x" * 15_000
NOW = time.time_ns() // 1_000_000  # a record that is older than its topic's retention is deleted


class Read(NamedTuple):
    """A record as a consumer sees it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Memory:
    """The in-memory publisher, with topics that behave like real ones."""

    KINDS: ClassVar = {
        "one LARGE record at a time": "refused_in_batch",
        "small records": "refused",
        "records of the last hour": "refusing_timestamps",
        "nothing": "failing",
    }

    def __init__(self):
        self.publisher = MemoryPublisher(PARTITIONS)

    async def topic(self, takes="anything"):
        name = uuid4().hex
        if takes in self.KINDS:
            getattr(self.publisher, self.KINDS[takes]).add(name)
        return name

    async def read(self, topic):
        ends = [0] * PARTITIONS
        found = []
        for record in self.publisher.records(topic):
            place = record.partition, ends[record.partition]
            ends[record.partition] += 1
            found.append(Read(*place, record.timestamp_ms, record.key, record.value, record.headers))
        return sorted(found, key=lambda one: (one.partition, one.offset))


class Simulated:
    """The simulated client of simulated brokers."""

    KINDS: ClassVar = {
        "one LARGE record at a time": {"max_bytes": 20_000},
        "small records": {"max_bytes": 1000},
        "records of the last hour": {"max_age_ms": 3_600_000},
    }

    def __init__(self):
        self._cluster = new_cluster()
        self._cluster.epoch = NOW / 1000 - self._cluster.loop.time()
        self.publisher = SimPublisher(self._cluster, "host", held(), timeout=30)

    async def limit_batches(self, size):
        self.publisher = SimPublisher(self._cluster, "host", held(), timeout=30, batch_bytes=size)

    async def topic(self, takes="anything"):
        if takes == "nothing":
            self.publisher = SimPublisher(self._cluster, "host", held(), timeout=0.5)
            return "no-such-topic"
        topic = SimTopic.new(uuid4().hex, PARTITIONS, **self.KINDS.get(takes, {}))
        self._cluster.create(topic)
        return topic.name

    async def read(self, topic):
        return [
            Read(partition, one.offset, one.timestamp_ms, one.key, one.value, one.headers)
            for partition, records in self._cluster.committed_records(topic).items()
            for one in records
        ]


def held():
    """Return a lease that never expires."""
    lease = Lease(math.inf)
    lease.renew(0)
    return lease


class Kafka:
    """The real publisher, with such topics on a real broker."""

    KINDS: ClassVar = {
        "one LARGE record at a time": {"max.message.bytes": "20000"},
        "small records": {"max.message.bytes": "1000"},
        "records of the last hour": {"message.timestamp.before.max.ms": "3600000"},
    }

    def __init__(self, servers, folder, max_request_bytes=1_000_000, lease=None):
        self._max_request_bytes = max_request_bytes
        self._kafka = KafkaSettings(bootstrap_servers=servers)
        self.publisher = OutputPublisher(self._kafka, max_request_bytes, lease or held())
        self._stream = Stream(Settings(kafka=self._kafka.model_dump()), folder)

    async def __aenter__(self):
        await self.publisher.start()
        return self

    async def __aexit__(self, *_):
        await self.publisher.stop()

    async def topic(self, takes="anything"):
        if takes == "nothing":  # since it does not exist; the publisher waits for it no longer than it must
            await self._replace(self._kafka.model_copy(update={"request_timeout": 1.0}))
            return "no-such-topic"
        name = uuid4().hex
        config = self.KINDS.get(takes, {})
        async with admin_of(self._kafka.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name, PARTITIONS, 1, topic_configs=config)])
        return name

    async def limit_batches(self, size):
        await self._replace(self._kafka, size)

    async def _replace(self, kafka, *batch_bytes):
        await self.publisher.stop()
        self.publisher = OutputPublisher(kafka, self._max_request_bytes, held(), *batch_bytes)
        await self.publisher.start()

    async def read(self, topic):
        return [
            Read(one.partition, one.offset, one.timestamp, one.key, one.value, tuple(one.headers))
            for one in await self._stream.read(topic)
        ]


@pytest.fixture
def servers(request, implementation):
    """Where the broker is; None where there is none to be."""
    return request.getfixturevalue("broker").bootstrap_servers if implementation == "kafka" else None


@pytest.fixture
async def stage(implementation, servers, tmp_path):
    if servers is None:
        yield {"memory": Memory, "simulated": Simulated}[implementation]()
    else:
        async with Kafka(servers, tmp_path) as kafka:
            yield kafka


@pytest.fixture(params=["send", "send_alone"])
def publish(request, stage):
    """A function that publishes a record, in a batch or alone, and returns its offset."""

    async def and_wait(record):
        if request.param == "send_alone":
            return await stage.publisher.send_alone(record)
        return await (await stage.publisher.send(record))

    return and_wait


def record(topic, value=b"v", key=b"k", partition=0, headers=()):
    return OutputRecord(topic, partition, NOW, key, value, headers)


async def test_records_get_their_partition_s_offsets_in_the_order_of_sending(stage):
    topic = await stage.topic()
    places = [(number % PARTITIONS, b"%d" % number) for number in range(60)]

    deliveries = [
        await stage.publisher.send(record(topic, value, partition=partition)) for partition, value in places
    ]

    assert await asyncio.gather(*deliveries) == [number // PARTITIONS for number in range(60)]
    assert [(one.partition, one.value) for one in await stage.read(topic)] == sorted(
        places, key=lambda place: (place[0], int(place[1]))
    )


async def test_a_flush_waits_for_records_that_nobody_waits_for_any_more(stage):
    topic = await stage.topic()
    for number in range(20):
        delivery = await stage.publisher.send(record(topic, partition=number % PARTITIONS))
        delivery.cancel()

    await stage.publisher.flush()

    assert len(await stage.read(topic)) == 20


async def test_a_record_without_key_and_value_keeps_its_order_among_the_others(stage):
    topic = await stage.topic()
    sent = [(b"1", b"k"), (None, None), (b"2", b"k"), (b"3", b"k")]

    deliveries = [await stage.publisher.send(record(topic, value, key)) for value, key in sent]

    assert await asyncio.gather(*deliveries) == [0, 1, 2, 3]


@pytest.mark.parametrize("partition", [0, 2, None])
@pytest.mark.parametrize(
    ("key", "value"),
    [(b"k", b"v"), (None, b"v"), (b"k", None), (b"", b""), (b"\xff\x00", b"\xff"), (None, None)],
)
async def test_key_value_timestamp_and_headers_arrive_unchanged(key, value, partition, publish, stage):
    topic = await stage.topic()
    headers = (("a", b"1"), ("b", None), ("a", b"\xff"), ("a", b"1"), ("", b""))

    offset = await publish(record(topic, value, key, partition, headers))

    (read,) = await stage.read(topic)
    assert read == Read(read.partition, offset, NOW, key, value, headers)
    assert partition in {read.partition, None}


async def test_a_key_without_a_partition_number_goes_to_one_partition_however_it_is_sent(stage):
    """A record sent again alone must keep its order among the others of its key."""
    topic = await stage.topic()
    keys = [b"%d" % number for number in range(20)]
    for key in keys:
        await (await stage.publisher.send(record(topic, key=key, partition=None)))
        await stage.publisher.send_alone(record(topic, key=key, partition=None))

    places = {(one.key, one.partition) for one in await stage.read(topic)}

    assert len(places) == len(keys)
    assert {partition for _, partition in places} == set(range(PARTITIONS))


async def test_a_record_larger_than_a_batch_arrives(publish, stage):
    topic = await stage.topic()
    value = b"x" * 400_000

    await publish(record(topic, value))

    assert [one.value for one in await stage.read(topic)] == [value]


async def test_a_record_rejected_in_a_batch_can_be_accepted_alone(stage):
    topic = await stage.topic("one LARGE record at a time")
    records = [record(topic, LARGE, key=b"%d" % number) for number in range(5)]

    deliveries = [await stage.publisher.send(one) for one in records]
    results = await asyncio.gather(*deliveries, return_exceptions=True)

    refused = [one for one, result in zip(records, results, strict=True) if isinstance(result, TooLargeError)]
    assert refused
    for one in refused:
        await stage.publisher.send_alone(one)
    assert {one.key for one in await stage.read(topic)} == {one.key for one in records}


@pytest.mark.parametrize(
    "implementation", ["simulated", pytest.param("kafka", marks=pytest.mark.integration)], indirect=True
)
async def test_no_batch_is_refused_that_is_limited_to_what_the_topic_takes(stage):
    """Behind a refused batch, the next one is written: an entry would have no predecessor."""
    topic = await stage.topic("one LARGE record at a time")
    await stage.limit_batches(20_000)
    records = [record(topic, LARGE, key=b"%d" % number) for number in range(5)]

    deliveries = [await stage.publisher.send(one) for one in records]

    assert await asyncio.gather(*deliveries) == [0, 1, 2, 3, 4]


async def test_a_record_sent_alone_does_not_share_its_batch_with_concurrent_records(stage):
    """Otherwise the others' size would turn a trace that fits into a dead letter."""
    topic = await stage.topic("one LARGE record at a time")
    await stage.publisher.send_alone(record(topic))
    alone = asyncio.create_task(stage.publisher.send_alone(record(topic, LARGE)))
    others = [asyncio.create_task(stage.publisher.send(record(topic, LARGE))) for _ in range(3)]

    assert await alone == 1

    deliveries = await asyncio.gather(*others)
    await asyncio.gather(*deliveries, return_exceptions=True)


async def test_a_record_too_large_by_itself_is_rejected_either_way(publish, stage):
    topic = await stage.topic("small records")

    with pytest.raises(TooLargeError, match=topic) as refusal:
        await publish(record(topic, LARGE))

    assert "xxx" not in str(refusal.value)
    assert await stage.read(topic) == []


async def test_a_timestamp_rejected_by_the_topic_is_a_timestamp_error_and_no_timestamp_is_accepted(
    publish, stage
):
    topic = await stage.topic("records of the last hour")

    with pytest.raises(TimestampError, match=topic):
        await publish(replace(record(topic), timestamp_ms=NOW - 7_200_000))
    await publish(replace(record(topic), timestamp_ms=NO_TIMESTAMP))

    assert len(await stage.read(topic)) == 1


@pytest.mark.integration
async def test_clock_skew_with_the_broker_does_not_prevent_sending(broker, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "knowledgepulse_worker.kafka.output_publisher.time", SimpleNamespace(time_ns=lambda: 4 * 10**18)
    )
    async with Kafka(broker.bootstrap_servers, tmp_path) as stage:
        topic = await stage.topic()

        await stage.publisher.send_alone(replace(record(topic), timestamp_ms=NO_TIMESTAMP))

        assert [one.timestamp_ms for one in await stage.read(topic)] == [NO_TIMESTAMP]


async def test_an_unconfirmed_record_is_an_error_that_names_only_topic_and_partition(publish, stage):
    topic = await stage.topic("nothing")

    with pytest.raises(DeliveryError, match=topic) as failure:
        await publish(record(topic, b"private"))

    assert not isinstance(failure.value, TooLargeError)
    assert "private" not in str(failure.value)


async def test_after_an_unconfirmed_record_nothing_more_is_sent(publish, stage):
    """An entry must not be written whose predecessor was not."""
    topic, failing = await stage.topic(), await stage.topic("nothing")
    with pytest.raises(DeliveryError):
        await publish(record(failing))

    with pytest.raises(DeliveryError):
        await publish(record(topic))

    assert await stage.read(topic) == []


@pytest.mark.integration
async def test_a_record_beyond_the_client_s_own_limit_is_also_too_large(broker, tmp_path):
    """The client rejects it before sending."""
    async with Kafka(broker.bootstrap_servers, tmp_path, max_request_bytes=1000) as stage:
        delivery = await stage.publisher.send(record(await stage.topic(), LARGE))

        with pytest.raises(TooLargeError):
            await delivery


@pytest.mark.integration
@pytest.mark.parametrize("send", ["send", "send_alone"])
async def test_nothing_is_sent_while_the_lease_is_not_held(broker, tmp_path, send):
    """Other workers may own the partitions and have published the same records with different scores."""
    lease = Lease(60)
    async with Kafka(broker.bootstrap_servers, tmp_path, lease=lease) as stage:
        topic = await stage.topic()
        sending = asyncio.create_task(getattr(stage.publisher, send)(record(topic)))
        await lease_awaited(lease)
        assert await stage.read(topic) == []

        lease.renew(time.monotonic())
        done = await sending

        assert (done if send == "send_alone" else await done) == 0
        assert len(await stage.read(topic)) == 1


async def lease_awaited(lease):
    async with asyncio.timeout(60):
        while not lease._waiting:
            await asyncio.sleep(0)
