"""A group and a changelog of an earlier release are taken over: nothing lost, nothing scored again.

``data/left-behind-by-56e9080.json`` is what a worker of that commit left when it was killed (SIGKILL): the
last release on Faust's own Kafka driver, with its assignor and changelog entries without a format version.
"""

import base64
import json
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from knowledgepulse_worker.kafka.topics import changelog_topic_name
from knowledgepulse_worker.tools.audit import audit
from support.streams import Message, source_of

pytestmark = pytest.mark.integration

LEFT_BEHIND = json.loads(Path(__file__).with_name("data").joinpath("left-behind-by-56e9080.json").read_text())
PARTITIONS = 2
LAST_PUBLISHED = 17
"""The source offset of the last output that was published before the kill; later ones have only an entry."""

CACHE = {"max_elements": 6, "dimensions": 16}


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
        return cls(*(getattr(record, name) for name in cls._fields[:-1]), tuple(record.headers))


def _bytes(text):
    return None if text is None else base64.b64decode(text)


def _headers(record):
    return [(name, _bytes(value)) for name, value in record["headers"]]


class Predecessor:
    """Puts what it left behind into a stream of another name."""

    def __init__(self, stream):
        self._stream = stream
        self._raw = stream.settings.topics.raw
        self.committed = {int(number): offset for number, offset in LEFT_BEHIND["committed_before"].items()}
        self.outputs = [self._output(record) for record in LEFT_BEHIND["outputs"]]

    def _output(self, record):
        """Return an output under the stream's own names."""
        topic = getattr(self._stream.settings.topics, record["topic"])
        renamed = (LEFT_BEHIND["raw_topic"].encode(), self._raw.encode())
        headers = tuple((name, value and value.replace(*renamed)) for name, value in _headers(record))
        key, value = _bytes(record["key"]), _bytes(record["value"])
        return Output(topic, record["partition"], record["timestamp"], key, value, headers)

    async def leave(self):
        kafka = self._stream.settings.kafka
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            for topic, name in ((self._raw, "raw"), (changelog_topic_name(kafka.group), "changelog")):
                for one in LEFT_BEHIND[name]:
                    await producer.send(
                        topic,
                        _bytes(one["value"]),
                        key=_bytes(one["key"]),
                        partition=one["partition"],
                        timestamp_ms=one["timestamp"],
                        headers=_headers(one),
                    )
            for one in self.published():
                await producer.send(
                    one.topic,
                    one.value,
                    key=one.key,
                    partition=one.partition,
                    timestamp_ms=one.timestamp,
                    headers=list(one.headers),
                )
            await producer.flush()
        consumer = AIOKafkaConsumer(
            bootstrap_servers=kafka.bootstrap_servers, group_id=kafka.group, enable_auto_commit=False
        )
        async with consumer:
            positions = {
                TopicPartition(self._raw, number): offset for number, offset in self.committed.items()
            }
            consumer.assign(list(positions))
            await consumer.commit(positions)

    def published(self):
        return [one for one in self.outputs if source_of(one)[1] <= LAST_PUBLISHED]


async def test_a_worker_takes_over_from_one_of_the_release_before_the_seam(make_stream, real_traces):
    stream = await make_stream(PARTITIONS, cache=CACHE)
    predecessor = Predecessor(stream)
    await predecessor.leave()
    raw = await stream.publish(
        Message(trace, partition=n % PARTITIONS) for n, trace in enumerate(real_traces[:20])
    )

    async with stream.worker() as worker:
        outputs = await stream.outputs(worker, raw)
        await worker.stop()

    found = {source_of(one): Output.of(one) for one in outputs}  # the last one of each source
    assert all(found[source_of(left)] == left for left in predecessor.outputs)
    report = await audit(stream.settings)
    assert (report.missing, report.differing) == (0, 0)
    assert sum(partition.novelty_exact for partition in report.partitions) > 0
