"""What release 0.2.0 stored is read: no record without an outcome, no lost vector, no differing score.

That release wrote a record's ledger entry, published its output and committed its offset one after another.
``data/releases/0.2.0.stream.json`` is what its killed worker left in the topics.
"""

import base64
import json
from collections import Counter
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka.topic_id import TopicIds
from knowledgepulse_kafka.transactional_publisher import TOPIC_ID
from knowledgepulse_worker.kafka.worker_topics import changelog_topic_name
from knowledgepulse_worker.policy import FORMER_DIGEST_LENGTH
from knowledgepulse_worker.tools.audit import audit
from support import metrics_page as page
from support.offline import offline
from support.streams import Message, score_of, source_of
from support.traces import DATA

pytestmark = pytest.mark.integration

LEFT = json.loads((DATA / "releases" / "0.2.0.stream.json").read_bytes())
PARTITIONS = 2


class Output(NamedTuple):
    """All of an output that must not differ."""

    topic: str
    partition: int
    timestamp: int
    key: bytes
    value: bytes
    headers: tuple

    @classmethod
    def of(cls, record):
        # A policy's digest had 12 digits, with which today's begins.
        headers = (
            (name, value[:FORMER_DIGEST_LENGTH] if name == "kp-policy" else value)
            for name, value in record.headers
            if name != "kp-form"  # which is new
        )
        return cls(*(getattr(record, name) for name in cls._fields[:-1]), tuple(headers))


async def leave(stream):
    """Put what the former worker left into a stream of another name, under another topic's id."""
    kafka, raw = stream.settings.kafka.client_config(), stream.settings.topics.raw
    topic_ids = TopicIds(kafka, raw)
    await topic_ids.start()
    topic_id = await topic_ids.current(range(PARTITIONS))
    await topic_ids.stop()
    former_id = LEFT["positions"]["0"]["metadata"].removeprefix(TOPIC_ID)
    renamed = {LEFT["raw_topic"].encode(): raw.encode(), bytes.fromhex(former_id): topic_id}

    def content(saved):
        if saved is None:
            return None
        found = base64.b64decode(saved["base64"]) if isinstance(saved, dict) else saved.encode()
        for old, new in renamed.items():
            found = found.replace(old, new)
        return found

    async def send(topic, records):
        for record in records:
            await producer.send(
                topic,
                content(record["value"]),
                key=content(record["key"]),
                partition=record["partition"],
                timestamp_ms=record["timestamp"],
                headers=[(name, content(value)) for name, value in record["headers"]],
            )

    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        await send(raw, LEFT["raw"])
        await send(changelog_topic_name(kafka.group), LEFT["changelog"])
        for topic in ("contribute", "rejected", "dead_letter"):
            outputs = [output for output in LEFT["outputs"] if output["topic"] == topic]
            await send(getattr(stream.settings.topics, topic), outputs)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, group_id=kafka.group, enable_auto_commit=False
    )
    async with consumer:
        positions = {
            TopicPartition(raw, int(number)): OffsetAndMetadata(position["offset"], TOPIC_ID + topic_id.hex())
            for number, position in LEFT["positions"].items()
        }
        consumer.assign(list(positions))
        await consumer.commit(positions)


async def test_a_group_of_release_0_2_0_is_continued(make_stream, real_traces):
    stream = await make_stream(PARTITIONS, cache=LEFT["cache"], policy={"threshold": LEFT["threshold"]})
    topics = stream.settings.topics
    outputs_of = topics.contribute, topics.rejected, topics.dead_letter
    await leave(stream)
    former = await stream.read(*outputs_of)
    uncommitted = {
        source_of(record): Output.of(record)
        for record in former
        if source_of(record)[1] >= LEFT["positions"][str(source_of(record)[0])]["offset"]
    }
    assert uncommitted, "the former worker was killed between an output and its commit"

    async with stream.worker() as worker:
        raw = await stream.publish(
            Message(trace, partition=n % PARTITIONS) for n, trace in enumerate(real_traces[:20])
        )
        outputs = await stream.outputs(worker, raw)
        # Entries that it wrote ahead of its position are cut, as after any rewind; their records follow.
        assert page.value(await worker.metrics(), "kp_cache_resets_total", reason="rewind") == PARTITIONS

    # What the former worker had published but not committed is published once more, and is the same.
    repeated = Counter(map(source_of, outputs))
    assert {source for source, count in repeated.items() if count > 1} == set(uncommitted)
    assert set(repeated.values()) == {1, 2}
    assert all(
        Output.of(output) == uncommitted.get(source_of(output), Output.of(output)) for output in outputs
    )
    assert scores(outputs) == undisturbed(stream.settings, raw, outputs)

    # The upgrade was the only time.
    async with stream.worker() as worker:
        raw = await stream.publish([Message(trace, partition=0) for trace in real_traces[20:25]])
        later = await stream.outputs(worker, raw)
        assert await worker.stop() == 0
    assert len(later) == len(outputs) + 5
    report = await audit(stream.settings)
    assert (report.missing, report.waiting, report.unknown) == (0, 0, 0)
    # A letter that is published once more says what its value is.
    assert report.differing == sum(output.topic == topics.dead_letter for output in uncommitted.values())
    assert report.repeated == len(uncommitted)
    assert sum(partition.novelty_exact for partition in report.partitions) > 0


def scores(outputs):
    """Return the score of each scored record."""
    return {
        source_of(output): score_of(output)["score"]
        for output in outputs
        if "kp-score" in dict(output.headers)
    }


def undisturbed(settings, raw, outputs):
    """Return the scores that a single pass over each partition gives."""
    scored, found = scores(outputs), {}
    for number in range(PARTITIONS):
        records = [
            record
            for record in raw
            if (record.partition, record.offset) in scored and record.partition == number
        ]
        values = offline(settings, [record.value for record in records])
        found |= {
            (number, record.offset): score.quality_score
            for record, score in zip(records, values, strict=True)
        }
    return found


@asynccontextmanager
async def foreign_member(stream):
    """Yield a member with another assignor, which is all that the group knows of its application."""
    kafka = stream.settings.kafka
    consumer = AIOKafkaConsumer(
        stream.settings.topics.raw,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=kafka.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=(StickyPartitionAssignor,),
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


async def test_a_worker_waits_for_another_application_in_its_group_to_be_stopped(make_stream, real_traces):
    stream = await make_stream()
    raw = await stream.publish(Message(trace) for trace in real_traces[:10])
    async with foreign_member(stream) as other:
        first = [await other.getone() for _ in range(5)]
        async with stream.worker() as worker:
            await worker.logged("another application has members in this group; stop them first")
            assert (await other.getone()).offset == 5, "the other member is not disturbed"
            await other.commit({TopicPartition(raw[0].topic, 0): first[-1].offset + 1})
            await other.stop()

            outputs = await stream.outputs(worker, raw[5:])
            assert await worker.stop() == 0

    assert [source_of(output) for output in outputs] == [(0, offset) for offset in range(5, 10)]
    assert "raceback" not in worker.log()
