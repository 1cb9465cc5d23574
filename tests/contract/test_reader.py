"""The contract of every reader, on simulated brokers and on a real one."""

import time

import pytest

from knowledgepulse_kafka.records import OutputRecord
from knowledgepulse_kafka.testing import Clients, SimTopic, new_cluster
from knowledgepulse_kafka.topic_reader import TopicReader, read_topic
from knowledgepulse_kafka.topics import Topic
from support.streams import Message

PARTITIONS = 2
NOW = time.time_ns() // 10**6  # a record that is older than its topic's retention is deleted


class Simulated:
    """The simulated client of simulated brokers."""

    def __init__(self):
        cluster = new_cluster()
        self.reader = Clients(cluster).reader()
        self.topic = Topic("a-topic", PARTITIONS, 10**6)
        self._logs = SimTopic.new(self.topic.name, PARTITIONS)
        cluster.create(self._logs)

    async def write(self, messages):
        for message in messages:
            record = OutputRecord(
                self.topic.name, message.partition, message.timestamp_ms, None, message.value, ()
            )
            self._logs.logs[message.partition].append([record], 0)


class Kafka:
    """The real reader, with a topic on a real broker."""

    def __init__(self, stream, reader):
        self.reader = reader
        self.topic = Topic(stream.settings.topics.raw, PARTITIONS, 10**6)
        self.write = stream.publish


@pytest.fixture
async def stage(implementation, make_stream_if_real):
    if implementation != "kafka":
        yield Simulated()
    else:
        stream = await make_stream_if_real(PARTITIONS)
        async with TopicReader(
            stream.settings.kafka.client_config(), stream.settings.limits.batch_bytes
        ) as reader:
            yield Kafka(stream, reader)


@pytest.fixture
async def written(stage):
    """Five records; the second in partition 0 is late."""
    places = [(0, 0), (0, -60), (0, 20), (1, 10), (1, 30)]
    await stage.write(
        Message(b"%d" % number, partition=partition, timestamp_ms=NOW + seconds * 1000)
        for number, (partition, seconds) in enumerate(places)
    )
    return stage


async def test_bounds_are_the_offsets_that_a_partition_holds(written):
    assert await written.reader.bounds(written.topic.name, 0) == range(3)
    assert await written.reader.bounds(written.topic.name, 1) == range(2)


async def test_the_appended_offsets_of_several_partitions_are_told_at_once(written):
    name = written.topic.name
    assert await written.reader.appended(name, [0, 1]) == {0: range(3), 1: range(2)}
    assert [record.value async for record in written.reader.read(name, 0, range(3))] == [b"0", b"1", b"2"]


async def test_an_empty_partition_has_no_bounds_and_no_records(stage):
    assert len(await stage.reader.bounds(stage.topic.name, 0)) == 0
    assert [record async for record in read_topic(stage.reader, stage.topic, NOW, lambda *_: None)] == []


async def test_first_since_returns_the_first_record_of_that_time_or_later(written):
    async def first(seconds):
        return await written.reader.first_since(written.topic.name, 0, NOW + seconds * 1000)

    assert [await first(-3600), await first(0), await first(10), await first(60)] == [0, 0, 2, None]


async def test_only_the_requested_range_is_read(written):
    records = [record async for record in written.reader.read(written.topic.name, 0, range(1, 2))]
    assert [(record.offset, record.value) for record in records] == [(1, b"1")]


@pytest.mark.parametrize(("since", "values"), [(None, "01234"), (15, "24"), (3600, "")])
async def test_a_topic_is_read_since_a_time_and_reports_progress_to_its_end(written, since, values):
    since_ms = None if since is None else NOW + since * 1000
    reported = []
    records = read_topic(written.reader, written.topic, since_ms, lambda *progress: reported.append(progress))

    assert [record.value.decode() async for record in records] == [*values]
    assert reported[-1] == (len(values), len(values))
