"""An in-memory topic reader for tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from dataclasses import replace

from knowledgepulse_kafka.topic_reader import Record


class MemoryReader:
    """Implements :class:`~knowledgepulse_kafka.topic_reader.Reader` in memory.

    Attributes:
        records: the records of each topic and partition, in offset order.
    """

    def __init__(self) -> None:
        self.records: defaultdict[tuple[str, int], list[Record]] = defaultdict(list)

    def append(self, record: Record) -> None:
        """Append a record to its partition."""
        records = self.records[record.topic, record.partition]
        offset = records[-1].offset + 1 if records else 0
        records.append(replace(record, offset=offset))

    async def bounds(self, topic: str, partition: int) -> range:
        """Return the offsets that a partition holds now."""
        records = self.records[topic, partition]
        return range(records[0].offset, records[-1].offset + 1) if records else range(0)

    async def appended(self, topic: str, partitions: Collection[int]) -> dict[int, range]:
        """Return the offsets that partitions hold now; there are no transactions."""
        return {number: await self.bounds(topic, number) for number in partitions}

    async def first_since(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset with a record of that time or later, or None if there is none."""
        later = (
            record.offset for record in self.records[topic, partition] if record.timestamp >= timestamp_ms
        )
        return next(later, None)

    async def read(self, topic: str, partition: int, offsets: range) -> AsyncIterator[Record]:
        """Yield the records in a range of offsets."""
        for record in self.records[topic, partition]:
            if record.offset in offsets:
                yield record
