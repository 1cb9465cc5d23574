"""What becomes of the transactions of a lane under test. Whole workers have brokers in memory instead."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from knowledgepulse_kafka.commit_outcome import CommitOutcome, Committed, Refused, Throttled
from knowledgepulse_kafka.errors import (
    DeliveryError,
    Refusal,
    RefusedError,
    TooLargeError,
    UnacceptableError,
)
from knowledgepulse_kafka.records import OutputRecord, Position
from knowledgepulse_worker.lane.commit import Prepared


class MemoryPublisher:
    """Publishes and commits positions in memory.

    Args:
        partitions: the partition count of every topic.

    Attributes:
        committed: every committed record, in order, with its partition.
        positions: the committed positions.
        transactions: the number of transactions that were committed.
        refused_in_batch: topics that refuse a batch with more than one record as too large.
        refused: topics that refuse every record as too large.
        refusing_keyless: topics that refuse records without a key, as compacted ones do.
        is_throttled: whether a quota holds transactions back.
        gate: an event that blocks transactions until it is set.
    """

    def __init__(self, partitions: int = 1) -> None:
        self.committed: list[OutputRecord] = []
        self.positions: dict[int, Position] = {}
        self.transactions = 0
        self.refused_in_batch: set[str] = set()
        self.refused: set[str] = set()
        self.refusing_keyless: set[str] = set()
        self.is_throttled = False
        self.gate = asyncio.Event()
        self.gate.set()
        self._partitions = partitions
        self._ends: Counter[tuple[str, int | None]] = Counter()

    def records(self, *topics: str) -> list[OutputRecord]:
        """Return the committed records of topics, in order."""
        return [record for record in self.committed if record.topic in topics]

    async def commit(self, prepared: Prepared) -> CommitOutcome:
        """Commit what an assignment has prepared."""
        return await self.publish(prepared.records, prepared.positions, prepared.alone)

    async def publish(
        self,
        records: Sequence[OutputRecord],
        positions: Mapping[int, Position],
        alone: Collection[OutputRecord] = (),
    ) -> CommitOutcome:
        """Commit records and positions, or refuse them as the test says."""
        await self.gate.wait()
        if self.is_throttled:
            return Throttled("a quota is exceeded")
        batches: defaultdict[object, list[OutputRecord]] = defaultdict(list)
        for record in records:
            is_alone = any(single is record for single in alone)
            batches[id(record) if is_alone else (record.topic, record.partition)].append(record)
        refusals = [Refusal(batch, error) for batch in batches.values() if (error := self._error(batch))]
        if refusals:
            return Refused(RefusedError(*refusals))
        self.transactions += 1
        self.positions |= positions
        return Committed([self._append(record) for record in records])

    def _append(self, record: OutputRecord) -> int:
        if record.partition is None:
            record = replace(record, partition=zlib.crc32(record.key or b"") % self._partitions)
        self.committed.append(record)
        self._ends[record.topic, record.partition] += 1
        return self._ends[record.topic, record.partition] - 1

    def _error(self, batch: Sequence[OutputRecord]) -> DeliveryError | None:
        topic = batch[0].topic
        if topic in self.refused or (topic in self.refused_in_batch and len(batch) > 1):
            return TooLargeError(f"{topic}: too large")
        if topic in self.refusing_keyless and any(record.key is None for record in batch):
            return UnacceptableError(f"{topic}: no key")
        return None
