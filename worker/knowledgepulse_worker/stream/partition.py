"""An owned partition during an assignment, and the batches fetched from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_worker.records.record import RawRecord

# The number of batches that the host holds before fetching pauses: one being taken and one ready.
_MAX_OUTSTANDING = 2


@dataclass(slots=True)
class Partition:
    """An owned partition during an assignment.

    Attributes:
        at: the topic and the partition number.
        is_recovered: whether the partition's ledger is recovered.
        outstanding: the number of batches handed over that the lane has not fully taken.
        fetched: the offset of the last record handed over.
        expected: the offset of the next record; None if the group has no position.
        done: the offset below which all records had outputs when the assignment began.
        epoch: the leader epoch of the record before that; -1 if unknown.
        committed: the group's position; its metadata names the topic's id.
        position: the client's position at the last refresh.
    """

    at: TopicPartition
    is_recovered: bool = False
    outstanding: int = 0
    fetched: int = -1
    expected: int | None = None
    done: int = 0
    epoch: int = -1
    committed: OffsetAndMetadata | None = None
    position: int = 0

    @property
    def is_full(self) -> bool:
        """Whether fetching must pause."""
        return self.outstanding >= _MAX_OUTSTANDING

    def has_unfinished(self, position: int | None) -> bool:
        """Return whether a record that was handed over is not committed, given the lane's position."""
        return self.fetched >= 0 and (position is None or self.fetched >= position)


@dataclass(frozen=True, slots=True)
class Batch:
    """The records that a fetch returned for a partition, in offset order."""

    partition: Partition
    records: Sequence[RawRecord]
