"""An independent reader of the raw topic and the output topics.

It decodes batches like the worker, since the plain client fails at a hostile batch. The number of records
that it has read is compared with the producers' confirmations.
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
from knowledgepulse_kafka.record_batches import decode_within
from knowledgepulse_worker.records.outputs import TRUNCATED_BYTES
from knowledgepulse_worker.settings import TopicSettings
from support.streams import source_of

_FETCH_BYTES, _FETCH_MS = 1_048_576, 100
"""A fetch is answered once there is that much, or after that time: not once for each record."""


class Identity(NamedTuple):
    """The identity of a raw record; a recreated topic has records with the same offsets but other keys.

    A long key is represented by its first bytes, which a dead letter keeps even if its topic rejects the key.
    """

    key: bytes | None
    partition: int
    offset: int


class Witness:
    """Reads the committed records of the topics from their start.

    Attributes:
        raw: all raw records.
        current: raw records of the current topic, since it was last recreated.
        outputs: digests of each raw record's outputs: topic, partition, timestamp, key, value and headers.
        altered: raw records with an output that differs from them in more than the score.
        dead_letters: raw records with a dead letter.
        uncopied: source partitions and offsets of contributed traces without a redacted copy.
        given_up: number of raw records without an expected output.
        last_seen: time of the last record (``time.monotonic``).
        longest_pause: the longest time in seconds that a partition had no output, since :meth:`watch_pauses`.
    """

    def __init__(
        self, bootstrap_servers: str, topics: TopicSettings, partitions: int, batch_bytes: int
    ) -> None:
        self._batch_bytes = batch_bytes
        self.raw: set[Identity] = set()
        self.current: set[Identity] = set()
        self.outputs: dict[Identity, list[bytes]] = defaultdict(list)
        self.dead_letters: set[Identity] = set()
        self.contributed: set[tuple[int, int]] = set()
        self.copied: set[tuple[int, int]] = set()
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
        self._copies = [
            TopicPartition(topics.redacted, number) for number in range(partitions) if topics.redacted
        ]
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_min_bytes=_FETCH_BYTES,
            fetch_max_wait_ms=_FETCH_MS,
        )
        self.last_seen = time.monotonic()
        self._published = dict.fromkeys(range(partitions), -1)
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
            consumer.assign(self._raw + self._out + self._copies)
            await consumer.seek_to_beginning()
            while True:
                for batch in (await consumer.getmany(timeout_ms=100)).values():
                    for record in batch:
                        self._see(record)
        finally:
            await consumer.stop()

    async def reread_raw(self) -> None:
        """Read the recreated raw topic from its start."""
        self.current = set()
        await self._consumer.seek_to_beginning(*self._raw)

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
    def uncopied(self) -> set[tuple[int, int]]:
        """Partitions and offsets of contributed traces without a redacted copy, if there are copies."""
        return self.contributed - self.copied if self._copies else set()

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

    def published(self) -> dict[int, int]:
        """Return the highest offset with an output of each raw partition; -1 if there is none."""
        return dict(self._published)

    def ends(self) -> dict[int, int]:
        """Return the offset after the last raw record of each partition of the current topic."""
        found = dict.fromkeys((place.partition for place in self._raw), 0)
        for record in self.current:
            found[record.partition] = max(found[record.partition], record.offset + 1)
        return found

    def behind_outputs(self, records: set[Identity]) -> dict[int, int]:
        """Return the next offset after the last of these records with an output, by partition."""
        behind: dict[int, int] = {}
        for record in records & self.outputs.keys():
            behind[record.partition] = max(record.offset + 1, behind.get(record.partition, 0))
        return behind

    def give_up(self, deleted: set[Identity], begin: Mapping[int, int]) -> int:
        """Expect no output of records that were deleted before a worker finished them.

        Args:
            deleted: the deleted records of one topic.
            begin: first offset of each partition for which outputs cannot be required.

        Returns:
            Number of these records.
        """
        lost = {
            output
            for output in deleted - self.outputs.keys()
            if output.offset >= begin.get(output.partition, 0)
        }
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
        if record.topic == self._topics.redacted:
            self.copied.add(source_of(record))
            return
        if record.topic == self._topics.contribute:
            self.contributed.add(source_of(record))
        identity = _identity(record.key, *source_of(record))
        partition, offset = identity.partition, identity.offset
        self.outputs[identity].append(_digest(record))
        self._claimed[identity].add(claimed(record))
        self._published[partition] = max(self._published[partition], offset)
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
