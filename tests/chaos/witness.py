"""An independent reader of the raw topic and the output topics.

It decodes batches like the worker, since the plain client fails at a hostile batch. The number of records
that it has read is compared with the producers' confirmations.
"""

from __future__ import annotations

import time
from collections import defaultdict
from hashlib import blake2b
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import ConsumerRecord

from chaos.content import claimed, produced, with_own_time
from knowledgepulse_kafka.record_batches import decode_within
from knowledgepulse_worker.records.outputs import TRUNCATED_BYTES
from knowledgepulse_worker.settings import TopicSettings
from support.streams import source_of

_FETCH_BYTES, _FETCH_MS = 1_048_576, 100
"""A fetch is answered once there is that much, or after that time: not once for each record."""


class Identity(NamedTuple):
    """The identity of a raw record.

    A long key is represented by its first bytes, which a dead letter keeps even if its topic rejects the key.
    """

    key: bytes | None
    partition: int
    offset: int


class Witness:
    """Reads the committed records of the topics from their start.

    Attributes:
        raw: all raw records.
        outputs: digests of each raw record's outputs: topic, partition, timestamp, key, value and headers.
        altered: raw records with an output that differs from them in more than the score.
        dead_letters: raw records with a dead letter.
        last_seen: time of the last record (``time.monotonic``).
        longest_pause: the longest time in seconds that a partition had no output, since :meth:`watch_pauses`.
    """

    def __init__(
        self, bootstrap_servers: str, topics: TopicSettings, partitions: int, batch_bytes: int
    ) -> None:
        self._batch_bytes = batch_bytes
        self.raw: set[Identity] = set()
        self.outputs: dict[Identity, list[bytes]] = defaultdict(list)
        self.dead_letters: set[Identity] = set()
        self._produced: dict[Identity, set[bytes]] = {}
        self._claimed: dict[Identity, set[bytes]] = defaultdict(set)
        self._topics = topics
        self._raw = [TopicPartition(topics.raw, number) for number in range(partitions)]
        self._out = [
            TopicPartition(topic, number)
            for topic in (topics.contribute, topics.rejected, topics.dead_letter)
            for number in range(partitions)
        ]
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_min_bytes=_FETCH_BYTES,
            fetch_max_wait_ms=_FETCH_MS,
        )
        self.last_seen = time.monotonic()
        self._ends: dict[TopicPartition, int] = {}
        self._arrivals: dict[int, float] = {}
        self.longest_pause = 0.0
        self._previous: dict[int, float] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        consumer = self._consumer
        try:
            await consumer.start()
            decode_within(consumer, self._batch_bytes)
            consumer.assign(self._raw + self._out)
            await consumer.seek_to_beginning()
            while True:
                for batch in (await consumer.getmany(timeout_ms=100)).values():
                    for record in batch:
                        self._see(record)
        finally:
            await consumer.stop()

    async def expect(self) -> None:
        """Start waiting for the next output of each partition."""
        self._ends = await self._consumer.end_offsets(self._out)
        self._arrivals = {}

    @property
    def resumed(self) -> float | None:
        """The time by which all partitions had an output after :meth:`expect`; None if some have none."""
        return max(self._arrivals.values()) if len(self._arrivals) == len(self._raw) else None

    def watch_pauses(self) -> None:
        """Start measuring how long partitions are without an output."""
        self.longest_pause = 0.0
        self._previous = dict.fromkeys((place.partition for place in self._raw), time.monotonic())

    @property
    def missing(self) -> set[Identity]:
        """Raw records without an output."""
        return self.raw - self.outputs.keys()

    @property
    def unexpected(self) -> set[Identity]:
        """Outputs of records that never existed or were aborted."""
        return self.outputs.keys() - self.raw

    @property
    def altered(self) -> set[Identity]:
        """Raw records whose output has another timestamp, key, header, or value (apart from the score)."""
        return {
            identity for identity, produced in self._produced.items() if self._claimed[identity] - produced
        }

    @property
    def repeats(self) -> int:
        """Number of outputs beyond the first of each raw record."""
        return sum(len(digests) - 1 for digests in self.outputs.values())

    @property
    def differing(self) -> int:
        """Number of raw records with unequal outputs."""
        return sum(len(set(digests)) > 1 for digests in self.outputs.values())

    def _see(self, record: ConsumerRecord) -> None:
        self.last_seen = time.monotonic()
        if record.topic == self._topics.raw:
            identity = _identity(record.key, record.partition, record.offset)
            self.raw.add(identity)
            self._produced[identity] = produced(record)
            return
        identity = _identity(record.key, *source_of(record))
        partition = identity.partition
        self.outputs[identity].append(_digest(record))
        self._claimed[identity].add(claimed(record))
        if partition in self._previous:
            self.longest_pause = max(self.longest_pause, self.last_seen - self._previous[partition])
            self._previous[partition] = self.last_seen
        if record.topic == self._topics.dead_letter:
            self.dead_letters.add(identity)
        if record.offset >= self._ends.get(TopicPartition(record.topic, record.partition), 0):
            self._arrivals.setdefault(record.partition, time.monotonic())


def _identity(key: bytes | None, partition: int, offset: int) -> Identity:
    return Identity(key and key[:TRUNCATED_BYTES], partition, offset)


def _digest(record: ConsumerRecord) -> bytes:
    record = with_own_time(record)
    parts = (record.topic, record.partition, record.timestamp, record.key, record.value, record.headers)
    return blake2b(repr(parts).encode(), digest_size=8).digest()
