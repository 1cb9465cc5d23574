"""One owned partition during one assignment, and the batches fetched of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_worker.records.record import RawRecord

# Batches of a partition in the host's hands before fetching pauses: one being taken, one ready.
_MAX_OUTSTANDING = 2


@dataclass(frozen=True, slots=True)
class Batch:
    """The records that one fetch returned for one partition.

    Attributes:
        records: the records, in offset order.
        is_current: whether the assignment of the fetch still holds. If not, taking a record would skip those
            redelivered before it.
        done: to be called once the lane has taken all records.
    """

    records: Sequence[RawRecord]
    is_current: Callable[[], bool]
    done: Callable[[], None]

    async def give(self, take: Callable[[RawRecord], Awaitable[None]]) -> None:
        """Pass the records on one by one, as long as the assignment holds."""
        for record in self.records:
            if not self.is_current():
                return
            await take(record)
        self.done()


@dataclass(slots=True)
class Partition:
    """One owned partition during one assignment.

    Attributes:
        is_recovered: whether its ledger is recovered.
        outstanding: batches handed over that the lane has not fully taken.
        fetched: the offset of the last record handed over.
        expected: the offset of the next record; None if the group has no position.
        committed: the group's position, with the topic that it is in.
        position: the client's position at the last refresh.
    """

    at: TopicPartition
    is_recovered: bool = False
    outstanding: int = 0
    fetched: int = -1
    expected: int | None = None
    committed: OffsetAndMetadata | None = None
    position: int = 0

    @property
    def is_full(self) -> bool:
        """Whether fetching must pause."""
        return self.outstanding >= _MAX_OUTSTANDING

    def has_unfinished(self, watermark: int | None) -> bool:
        """Return whether a record that was handed over is not finished yet."""
        return self.fetched >= 0 and (watermark is None or self.fetched >= watermark)
