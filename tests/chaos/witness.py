"""Sees everything that goes into the raw topic and comes out of the output topics.

It decodes batches as workers do, since the usual client stops at a hostile one. That it has seen every record
is checked by count, against what the broker confirmed to the producers.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import ConsumerRecord

from chaos.content import claimed, produced, with_own_time
from support.streams import source_of
from worker.kafka.record_batches import install
from worker.lane.outputs import CUT_BYTES
from worker.settings import TopicSettings


class Identity(NamedTuple):
    """What tells a raw record from every other: two topics of the same name have other keys.

    Of a long key it is the beginning, which is what a dead letter keeps where its topic did not take it.
    """

    key: bytes | None
    partition: int
    offset: int


class Witness:
    """Reads the topics from their start, committed records only.

    Attributes:
        raw: what went in.
        current: that of it which is of the topic as it is now.
        outputs: what came out of each raw record: a digest of every output's topic, partition, timestamp,
            key, value and headers.
        altered: the raw records of which an output does not have the timestamp, key, value and headers.
        dead_letters: the raw records whose output is one.
        given_up: how many records of the raw topic no output is expected of.
        last_seen: when the last record came (``time.monotonic``).
    """

    def __init__(
        self, bootstrap_servers: str, topics: TopicSettings, partitions: int, batch_bytes: int
    ) -> None:
        install(batch_bytes)
        self.raw: set[Identity] = set()
        self.current: set[Identity] = set()
        self.outputs: dict[Identity, list[bytes]] = defaultdict(list)
        self.dead_letters: set[Identity] = set()
        self._produced: dict[Identity, set[bytes]] = {}
        self._claimed: dict[Identity, set[bytes]] = defaultdict(set)
        self.given_up = 0
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
            fetch_max_wait_ms=20,
        )
        self.last_seen = time.monotonic()
        self._published = dict.fromkeys(range(partitions), -1)
        self._ends: dict[TopicPartition, int] = {}
        self._arrivals: dict[int, float] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        consumer = self._consumer
        try:
            await consumer.start()
            consumer.assign(self._raw + self._out)
            await consumer.seek_to_beginning(*self._raw, *self._out)
            while True:
                for batch in (await consumer.getmany(timeout_ms=100)).values():
                    for record in batch:
                        self._see(record)
        finally:
            await consumer.stop()

    async def read_raw_anew(self) -> None:
        """Read the raw topic from its start: it is another one now."""
        self.current = set()
        await self._consumer.seek_to_beginning(*self._raw)

    async def expect(self) -> None:
        """From here on, note when each partition has its next output."""
        self._ends = await self._consumer.end_offsets(self._out)
        self._arrivals = {}

    @property
    def resumed(self) -> float | None:
        """When the last of the partitions had an output since :meth:`expect`; None while one has had none."""
        return max(self._arrivals.values()) if len(self._arrivals) == len(self._raw) else None

    @property
    def missing(self) -> set[Identity]:
        """What went in and has not come out."""
        return self.raw - self.outputs.keys()

    @property
    def unexpected(self) -> set[Identity]:
        """What came out and never went in, or was aborted."""
        return self.outputs.keys() - self.raw

    @property
    def altered(self) -> set[Identity]:
        """Raw records that came out with another timestamp, key, value (but for its score) or header."""
        return {one for one, told in self._produced.items() if self._claimed[one] - told}

    @property
    def repeats(self) -> int:
        """Outputs beyond the first of each raw record."""
        return sum(len(digests) - 1 for digests in self.outputs.values())

    @property
    def differing(self) -> int:
        """Raw records with outputs that are not all equal."""
        return sum(len(set(digests)) > 1 for digests in self.outputs.values())

    def published(self) -> dict[int, int]:
        """The highest offset of each raw partition that has an output; -1 for none."""
        return dict(self._published)

    def behind_outputs(self, records: set[Identity]) -> dict[int, int]:
        """Return the offset behind the last one of each partition that has an output, of these records."""
        behind: dict[int, int] = {}
        for one in records & self.outputs.keys():
            behind[one.partition] = max(one.offset + 1, behind.get(one.partition, 0))
        return behind

    def give_up(self, deleted: set[Identity], begin: Mapping[int, int]) -> int:
        """Expect no output of records that were deleted before a worker was done with them.

        Args:
            deleted: of one topic.
            begin: of each partition, the offset from which on workers cannot be held to them.

        Returns:
            how many that are.
        """
        lost = {one for one in deleted - self.outputs.keys() if one.offset >= begin.get(one.partition, 0)}
        self.raw -= lost
        self.given_up += len(lost)
        return len(lost)

    def _see(self, record: ConsumerRecord) -> None:
        self.last_seen = time.monotonic()
        if record.topic == self._topics.raw:
            identity = _identity(record.key, record.partition, record.offset)
            self.raw.add(identity)
            self.current.add(identity)
            self._produced[identity] = produced(record)
            return
        identity = _identity(record.key, *source_of(record))
        partition, offset = identity.partition, identity.offset
        self.outputs[identity].append(_digest(record))
        self._claimed[identity].add(claimed(record))
        self._published[partition] = max(self._published[partition], offset)
        if record.topic == self._topics.dead_letter:
            self.dead_letters.add(identity)
        if record.offset >= self._ends.get(TopicPartition(record.topic, record.partition), 0):
            self._arrivals.setdefault(record.partition, time.monotonic())


def _identity(key: bytes | None, partition: int, offset: int) -> Identity:
    return Identity(key and key[:CUT_BYTES], partition, offset)


def _digest(record: ConsumerRecord) -> bytes:
    record = with_own_time(record)
    parts = (record.topic, record.partition, record.timestamp, record.key, record.value, record.headers)
    return blake2b(repr(parts).encode(), digest_size=8).digest()
