"""Logs as brokers leave them: transactions that end in markers, then compacted (KIP-98, KIP-534, KAFKA-7467).

The rules are those of Kafka's ``LogCleaner``, except that chance decides what depends on time.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from support.batches import by_hand

TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT, COMMIT = 0, 1
KEYS = [None, b"a", b"b", b"c"]


@dataclass(frozen=True)
class Kept:
    """A record of a log."""

    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class StoredBatch:
    """A batch of a log; a transaction is told by the producer's id and the transaction's number."""

    base: int
    end: int
    records: tuple[Kept, ...]
    producer: tuple[int, int] = (-1, -1)
    transaction: tuple[int, int] | None = None
    is_control: bool = False
    codec: int = 0

    @property
    def data(self) -> bytes:
        """The batch as the brokers store it; an emptied one is not compressed."""
        attributes = (TRANSACTIONAL if self.transaction else 0) | (CONTROL if self.is_control else 0)
        records = [(record.offset - self.base, record.key, record.value, []) for record in self.records]
        return by_hand(
            records,
            self.codec if records else 0,
            base=self.base,
            last_delta=self.end - self.base - 1,
            attributes=attributes,
            producer=self.producer,
        )


@dataclass
class CompactedLog:
    """The log of a partition, all of whose transactions have ended.

    Attributes:
        aborted: the index of aborted transactions: the offsets of each, its marker included.
        hidden: all aborted transactions.
        ended_by_broker: the transactions that the coordinator aborted, for which it raised the epoch.
    """

    batches: list[StoredBatch] = field(default_factory=list)
    end: int = 0
    aborted: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    hidden: set[tuple[int, int]] = field(default_factory=set)
    ended_by_broker: set[tuple[int, int]] = field(default_factory=set)

    @property
    def committed(self) -> list[Kept]:
        """What a consumer of committed records reads."""
        data = [
            batch for batch in self.batches if not batch.is_control and batch.transaction not in self.hidden
        ]
        return [record for batch in data for record in batch.records]

    def fetch(self, offset: int, limit: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Return up to ``limit`` batches from an offset on, and the aborted transactions among them."""
        found = [batch for batch in self.batches if batch.end > offset][:limit]
        aborted = [
            (producer, begin)
            for (producer, _), (begin, end) in self.aborted.items()
            if begin < found[-1].end and offset < end
        ]
        return b"".join(batch.data for batch in found), aborted

    def append(self, contents: Sequence[tuple[bytes | None, bytes | None]], **attributes: object) -> None:
        """Append a batch."""
        base, self.end = self.end, self.end + len(contents)
        records = tuple(Kept(base + number, *content) for number, content in enumerate(contents))
        self.batches.append(StoredBatch(base, self.end, records, **attributes))  # type: ignore[arg-type]

    def compact(self, until: int, *, has_expired: bool, active: set[int]) -> None:
        """Compact the first ``until`` batches.

        Args:
            until: the number of batches.
            has_expired: whether ``delete.retention.ms`` has passed for tombstones and markers.
            active: the ids of producers that have not expired.
        """
        cleaned, dirty = self.batches[:until], self.batches[until:]
        with_data = {batch.transaction for batch in cleaned if batch.transaction and not batch.is_control}
        newest: dict[bytes | None, Kept] = {}
        for batch in cleaned:
            if not batch.is_control and batch.transaction not in self.hidden:
                newest |= {record.key: record for record in batch.records if record.key is not None}
        last = {batch.producer[0]: batch for batch in self.batches if self._remembers(batch)}
        kept = []
        for number, batch in enumerate(cleaned):
            if batch.is_control:
                gone = has_expired and batch.transaction is not None and batch.transaction not in with_data
                records = () if gone else batch.records
                if gone and batch.transaction is not None:
                    self.aborted.pop(batch.transaction, None)
            else:
                records = tuple(
                    record
                    for record in batch.records
                    if batch.transaction not in self.hidden
                    and newest.get(record.key) == record
                    and not (has_expired and record.value is None)
                )
            is_last = batch.producer[0] in active and last.get(batch.producer[0]) == batch
            if records or is_last or number == len(cleaned) - 1:
                kept.append(replace(batch, records=records))
        self.batches = kept + dirty

    def _remembers(self, batch: StoredBatch) -> bool:
        """Whether brokers keep the batch for the state of its producer if it is the last such."""
        return not batch.is_control or batch.transaction in self.ended_by_broker


@st.composite
def compacted_logs(draw: st.DrawFn) -> CompactedLog:
    """Draw a log with plain and transactional batches, markers, unknown control records and compactions."""
    log, counts, opened = CompactedLog(), dict.fromkeys(range(3), 0), dict[int, int]()
    contents = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.just(b"v")), min_size=1, max_size=3)

    def end(producer: int) -> None:
        transaction, first = (producer, counts[producer]), opened.pop(producer)
        commits, by_broker = draw(st.booleans()), draw(st.booleans())
        if not commits:
            log.hidden.add(transaction)
            log.aborted[transaction] = first, log.end + 1
        if by_broker:
            log.ended_by_broker.add(transaction)
        version = draw(st.sampled_from([0, 0, 0, 1]))
        key = struct.pack(">hh", version, COMMIT if commits else ABORT)
        log.append(
            [(key, bytes(6))], producer=(producer, by_broker), transaction=transaction, is_control=True
        )
        counts[producer] += 1

    log.append(draw(contents))
    for _ in range(draw(st.integers(0, 12))):
        producer = draw(st.sampled_from([-1, *counts]))
        kind = draw(st.sampled_from(["data", "data", "end", "unknown control"]))
        codec = draw(st.sampled_from([0, 1, 4]))
        if kind == "unknown control":
            key = draw(st.sampled_from([None, b"", b"\0", b"\0\0\0\x06", b"\0\x01\0\x09"]))
            log.append([(key, b"")], is_control=True)
        elif producer < 0:
            log.append(draw(contents), codec=codec)
        elif kind == "data":
            opened.setdefault(producer, log.end)
            transaction = (producer, counts[producer])
            log.append(draw(contents), producer=(producer, 0), transaction=transaction, codec=codec)
        elif producer in opened:
            end(producer)
    for producer in list(opened):
        end(producer)
    for _ in range(draw(st.integers(0, 3))):
        until = draw(st.integers(1, len(log.batches)))
        log.compact(until, has_expired=draw(st.booleans()), active=draw(st.sets(st.sampled_from([*counts]))))
    return log
