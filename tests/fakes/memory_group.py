"""An in-memory group member, whose partitions a test assigns, and its topic."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError
from aiokafka.structs import ConsumerRecord as Record
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka.group_member import CommittedPositions
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.request_waits import Waits

BATCH = 3
"""Maximum records per partition and fetch."""


@dataclass
class MemoryTopic:
    """A topic's records, and a group's positions.

    Attributes:
        id: the topic id, which changes when the topic is recreated.
        records: the records of each partition in offset order; offsets may have gaps.
        open_from: the first offset of an open transaction, by partition.
        committed: the group's committed offsets, by partition.
        metadata: the metadata that was committed with the offsets, by partition.
        begins: the first remaining offset, by partition.
        leader_epoch: the epoch of the present leaders.
    """

    name: str
    id: bytes
    records: list[list[Record]]
    open_from: dict[int, int] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    metadata: defaultdict[int, str] = field(default_factory=lambda: defaultdict(str))
    begins: dict[int, int] = field(default_factory=dict)
    leader_epoch: int = 0

    @classmethod
    def empty(cls, name: str, partitions: int, topic_id: bytes = b"") -> MemoryTopic:
        """Return a topic without records."""
        return cls(name, topic_id, [[] for _ in range(partitions)])

    def publish(
        self, partition: int, value: bytes | None, key: bytes | None = None, *, gap: int = 0
    ) -> Record:
        """Append a record after a gap of offsets."""
        offset = self.end(partition) + gap
        size = -1 if value is None else len(value)
        record = Record(self.name, partition, offset, 0, 0, key, value, None, -1, size, ())
        record.leader_epoch = self.leader_epoch
        self.records[partition].append(record)
        return record

    def delete_before(self, partition: int, offset: int) -> None:
        """Delete the records before an offset, as retention does."""
        self.begins[partition] = offset
        self.records[partition] = [record for record in self.records[partition] if record.offset >= offset]

    def truncate(self, partition: int, offset: int) -> None:
        """Elect a leader that lacks the records from an offset on."""
        self.leader_epoch += 1
        self.records[partition] = [record for record in self.records[partition] if record.offset < offset]

    def begin(self, partition: int) -> int:
        """Return the first remaining offset."""
        return self.begins.get(partition, 0)

    def end(self, partition: int) -> int:
        """Return the offset of the next record."""
        records = self.records[partition]
        return records[-1].offset + 1 if records else self.begin(partition)

    def stable_end(self, partition: int) -> int:
        """Return the last stable offset."""
        return self.open_from.get(partition, self.end(partition))


class MemoryGroupMember:
    """Implements :class:`~knowledgepulse_worker.stream.kafka_interfaces.Client` in memory.

    Args:
        topic: the topic to read.

    Attributes:
        group: the group with this member and its generation.
        answered_at: when the coordinator last answered.
        waits: what the member waits for.
        fetches: the number of fetches that have begun.
        unstable: events that the positions of partitions are awaited for.
        gate: an event that blocks fetches until it is set.
        error: if set, the group membership has ended and every fetch raises this error.
        look_up_error: an error that the next look-up of beginning offsets raises.
    """

    def __init__(self, topic: MemoryTopic) -> None:
        self.group = GroupMetadata("group", "member", 0)
        self.answered_at = time.monotonic()
        self.waits = Waits()
        self.error: KafkaError | None = None
        self.look_up_error: KafkaError | None = None
        self.is_member = False
        self.unstable: dict[int, asyncio.Event] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self._topic = topic
        self._listener: ConsumerRebalanceListener | None = None
        self._subscribed = asyncio.Event()
        self.fetches = 0
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    async def start(self) -> None:
        """Connect to nothing."""

    async def stop(self) -> None:
        """Leave the group."""
        self.is_member = False

    def subscribe(self, *, topics: Collection[str], listener: ConsumerRebalanceListener) -> None:
        """Join the group; :meth:`rebalance` then assigns partitions."""
        if set(topics) != {self._topic.name}:
            raise ValueError(f"there is only {self._topic.name}, not {', '.join(topics)}")
        self._listener = listener
        self._subscribed.set()

    async def rebalance(self, partitions: Iterable[int]) -> None:
        """Revoke all partitions, then assign these."""
        await self._subscribed.wait()
        assert self._listener is not None
        await self._listener.on_partitions_revoked(self.assignment())
        self.is_member = True
        self.group = GroupMetadata("group", "member", self.group.generation + 1)
        self._paused.clear()
        tps = [TopicPartition(self._topic.name, number) for number in partitions]
        self._positions = {tp: self._topic.committed.get(tp.partition, 0) for tp in tps}
        await self._listener.on_partitions_assigned(self.assignment())

    def expel(self) -> None:
        """End the membership, as an expired session does; the listener is called at the next rebalance."""
        self.is_member = False

    def check_membership(self) -> None:
        """Raise :attr:`error`, if there is one."""
        if self.error is not None:
            raise self.error

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self._positions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the topic's partitions; None if there is no such topic."""
        return set(range(len(self._topic.records))) or None if topic == self._topic.name else None

    async def gone(self, names: Collection[str]) -> list[str]:
        """Return those of some topics that do not exist."""
        return [name for name in names if self.partitions_for_topic(name) is None]

    async def getmany(self, *, timeout_ms: int) -> Mapping[TopicPartition, Sequence[Record]]:
        """Return the next records of the partitions that are not paused."""
        self.fetches += 1
        self.check_membership()
        await asyncio.sleep(min(timeout_ms, 1) / 1000)
        await self.gate.wait()
        # As in the real client, nothing is awaited from here on, so all records are of this assignment.
        fetched = {tp: records for tp in self._positions.keys() - self._paused if (records := self._next(tp))}
        for tp, records in fetched.items():
            self._positions[tp] = records[-1].offset + 1
        return fetched

    async def fetched(self) -> None:
        """Wait until another fetch has begun."""
        before = self.fetches
        while self.fetches == before:
            await asyncio.sleep(0.001)

    def _next(self, tp: TopicPartition) -> Sequence[Record]:
        stable = self._topic.stable_end(tp.partition)
        records = self._topic.records[tp.partition]
        return [record for record in records if self._positions[tp] <= record.offset < stable][:BATCH]

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop fetching these partitions."""
        self._require_assigned(*partitions)
        self._paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Fetch these partitions again."""
        self._require_assigned(*partitions)
        self._paused.difference_update(partitions)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return set(self._paused)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the offset of the next fetch."""
        self._require_assigned(partition)
        self._positions[partition] = offset

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Set the next fetch to the first remaining record."""
        for partition in partitions:
            self.seek(partition, self._topic.begin(partition.partition))

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next fetch."""
        self._require_assigned(partition)
        return self._positions[partition]

    async def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the offset of the first record of a later epoch, or the partition's end."""
        return {partition: self._epoch_end(partition, epoch) for partition, epoch in epochs.items()}

    def _epoch_end(self, partition: TopicPartition, epoch: int) -> int:
        records = self._topic.records[partition.partition]
        later = (record.offset for record in records if record.leader_epoch > epoch)
        return next(later, self._topic.end(partition.partition))

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the first remaining offsets."""
        error, self.look_up_error = self.look_up_error, None
        if error is not None:
            raise error
        return {tp: self._topic.begin(tp.partition) for tp in partitions}

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the group's positions; partitions without one are left out."""
        return {
            tp: OffsetAndMetadata(self._topic.committed[tp.partition], self._topic.metadata[tp.partition])
            for tp in partitions
            if tp.partition in self._topic.committed
        }

    async def stable_positions(
        self, partitions: Iterable[TopicPartition]
    ) -> AsyncIterator[CommittedPositions]:
        """Yield the positions: those outside of :attr:`unstable`, then the others one by one."""
        awaited = list(partitions)
        stable = [tp for tp in awaited if tp.partition not in self.unstable]
        if stable:
            yield await self._positions_of(stable)
        for tp in awaited:
            if tp not in stable:
                await self.unstable[tp.partition].wait()
                yield await self._positions_of([tp])

    async def _positions_of(self, partitions: Collection[TopicPartition]) -> CommittedPositions:
        committed = await self.committed(partitions)
        return {tp: committed.get(tp) for tp in partitions}

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark: the offset of the next record to be published."""
        return self._topic.end(partition.partition)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset below which all transactions have ended."""
        return self._topic.stable_end(partition.partition)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return a time in the far future for the broker's last response, so that it is never silent."""
        return 2**62

    def _require_assigned(self, *partitions: TopicPartition) -> None:
        if missing := set(partitions) - self._positions.keys():
            raise IllegalStateError(f"not assigned: {missing}")


class MemoryTopicIds:
    """A topic in memory, as a :class:`~knowledgepulse_worker.stream.kafka_interfaces.TopicIdentity`."""

    def __init__(self, topic: MemoryTopic) -> None:
        self._topic = topic
        self._is_connected = False

    async def start(self) -> None:
        """Connect."""
        self._is_connected = True

    async def stop(self) -> None:
        """Close the connection."""
        self._is_connected = False

    async def current(self, partitions: Iterable[int]) -> bytes:
        """Return the topic's id."""
        assert self._is_connected
        return self._topic.id
