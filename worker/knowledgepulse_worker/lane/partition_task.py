"""A partition's task: all that a worker knows of an owned partition, until the partition is revoked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import islice, takewhile

from knowledgepulse_kafka.client_types import Place
from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_worker.lane.fair_scheduler import FairScheduler, is_small
from knowledgepulse_worker.lane.lane import Lane
from knowledgepulse_worker.lane.ledger import Changelog

logger = logging.getLogger(__name__)

MAX_BATCHES = 2
"""The number of batches at which fetching pauses: one being taken and one ready."""


class PartitionTask:
    """An owned partition during an assignment, as Kafka Streams' ``StreamTask``.

    It passes the records that are fetched to its lane, one after another.

    Args:
        place: the raw topic and the partition number.
        changelog: the partition's committed entries, as far as they are known.
        scheduler: decides which task of an assignment takes records next.
        new_lane: makes a lane, given its first record.
        on_failure: called on a fatal error; the process must then end.
        on_room: called when the task has room for its partition's next records.

    Attributes:
        partition: the partition number.
        remaining: the number of changelog offsets still to be read; None before and after the recovery.
        is_recovered: whether the ledger is recovered, and records are fetched.
        committed: the offset below which all records are committed; None if the group has no position.
        next: the offset of the next record to fetch; None for the partition's beginning.
        epoch: the leader epoch of the record before that; -1 if unknown.
        untaken: the number of batches that were fetched and are not fully taken.
        position: the client's position at the last check, which passes over the markers of transactions.
        taking: held while a record is taken, as long as there are suspects.
        lane: the partition's pipeline, created with the first record.
    """

    def __init__(
        self,
        place: Place,
        changelog: Changelog,
        scheduler: FairScheduler,
        *,
        new_lane: Callable[[RawRecord], Lane],
        on_failure: Callable[[BaseException], None],
        on_room: Callable[[PartitionTask], None],
    ) -> None:
        self.place = place
        self.partition: int = place.partition
        self.changelog = changelog
        self.remaining: int | None = None
        self.is_recovered = False
        self.committed: int | None = None
        self.next: int | None = None
        self.epoch = -1
        self.position = 0
        self.taking = asyncio.Lock()
        self.lane: Lane | None = None
        self._scheduler = scheduler
        self._new_lane = new_lane
        self._on_failure = on_failure
        self._on_room = on_room
        self._batches: asyncio.Queue[Sequence[RawRecord]] = asyncio.Queue()
        self.untaken = 0
        self._taking: asyncio.Task[None] | None = None

    @property
    def is_current(self) -> bool:
        """Whether the task is of the present assignment: neither a rebalance nor the end has begun."""
        return self._scheduler.is_current

    # --- fetching

    def begin(self, offset: int | None, epoch: int) -> None:
        """Fetch from an offset on, or from the partition's beginning if it is None."""
        self.committed = self.next = offset
        self.epoch = epoch

    def fetched(self, end: int, epoch: int) -> None:
        """Note a batch of records that :meth:`feed` is going to pass on.

        Args:
            end: the offset behind the last record.
            epoch: the leader epoch of the last record.
        """
        self.untaken += 1
        self.next = end
        self.epoch = epoch

    @property
    def is_full(self) -> bool:
        """Whether fetching must pause."""
        return self.untaken >= MAX_BATCHES

    @property
    def has_unfinished(self) -> bool:
        """Whether a record was fetched that is not committed."""
        if self.untaken or (self.lane is not None and self.lane.in_flight.records):
            return True  # even if the position was set back since
        return self.next is not None and (self.committed is None or self.next > self.committed)

    def unread(self, offset: int, topic_id: bytes) -> range:
        """Return the offsets that a fetch skipped, except those that have outcomes.

        Args:
            offset: the offset of the fetch's first record.
            topic_id: the id of the raw topic; empty if unknown.
        """
        if self.next is None:
            return range(0)
        kept = self.changelog.position
        if kept is None or not topic_id or kept.topic_id != topic_id:
            return range(self.next, offset)
        return range(max(self.next, kept.offset), offset)  # the group's position may have been set back

    def move_back(self, end: int | None) -> range:
        """Fetch from the offset at which the log differs from what was read, if it does.

        Args:
            end: the offset up to which the log can agree; None if that is unknown.

        Returns:
            the offsets whose records were replaced; empty if the log agrees.
        """
        if self.next is None or end is None or end >= self.next:
            return range(0)
        replaced = range(end, self.next)
        self.next = end
        return replaced

    # --- progress

    @property
    def awaits_records(self) -> bool:
        """Whether only the partition's leader can bring it on: all that was fetched is committed."""
        return self.is_recovered and not self.has_unfinished

    def lag(self, end: int | None) -> int | None:
        """Return the number of offsets that are not committed; None if it is unknown.

        Args:
            end: the partition's end, behind all open transactions; None if the client does not know it.
        """
        if end is None or not self.is_recovered:
            return None
        done = self.committed if self.has_unfinished else None
        return max(0, end - (max(self.position, self.next or 0) if done is None else done))

    def waiting(self, stable: int | None, replaced: int) -> tuple[Hashable, ...] | None:
        """Return the progress of the records that wait to be finished or fetched; None if none waits.

        Args:
            stable: the last stable offset; None if the client does not know it.
            replaced: the number of records of all partitions that were refused and replaced. Each takes
                another transaction, for which the complete records wait.
        """
        if not self.is_recovered:
            return None
        if self.has_unfinished:
            waits_for_commit = self.lane is not None and self.lane.waits_for_commit
            return "finished", self.committed, replaced if waits_for_commit else 0
        if stable is not None and self.position < stable:
            return "fetched", self.position
        return None

    # --- taking

    def feed(self, records: Sequence[RawRecord]) -> None:
        """Have a batch of records taken in order, without waiting; ignore it once the assignment ends."""
        if self._scheduler.is_over or not self.is_current:
            return
        self._batches.put_nowait(records)
        if self._taking is None:
            self._taking = asyncio.create_task(self._take_batches(), name=f"partition {self.partition}")

    async def _take_batches(self) -> None:
        try:
            while True:
                batch, taken = await self._batches.get(), 0
                while (taken := taken + self._take_at_once(islice(batch, taken, None))) < len(batch):
                    await self.take(batch[taken])
                    taken += 1
                self.untaken -= 1
                self._on_room(self)
        except Exception as error:  # noqa: BLE001 - otherwise, it would only be logged
            self._on_failure(error)

    def _take_at_once(self, records: Iterable[RawRecord]) -> int:
        """Take the records before the first that waits, or for which others wait; return their number."""
        lane = self.lane
        if lane is None or not self._scheduler.let_take_at_once:
            return 0
        return lane.take_at_once(
            takewhile(lambda record: is_small(record) and self._continues(lane, record), records)
        )

    @staticmethod
    def _continues(lane: Lane, record: RawRecord) -> bool:
        return record.offset >= lane.taken and record.topic_id == lane.topic_id

    async def take(self, record: RawRecord) -> None:
        """Take a record when it is its turn, and once the lane has room; ignore it once closed."""
        async with self._scheduler.turn(self, record) as alone:
            lane = self.lane
            if lane is not None and not self._continues(lane, record):
                logger.warning(
                    "partition %d: position moved back from offset %d to %d",
                    *(self.partition, lane.taken, record.offset),
                )
                await lane.wait_idle()
                lane = None
            if self._scheduler.is_over:
                return
            if lane is None:
                self.lane = lane = self._new_lane(record)
                self.committed = record.offset
                await lane.ledger.open()
            blocked = await lane.take(record, alone=alone)
            await self._scheduler.let_others_work(record, blocked)

    def close(self) -> None:
        """Stop at once; the partition's next owner reads what is not committed."""
        if self._taking is not None:
            self._taking.cancel()
        if self.lane is not None:
            self.lane.close()
            self.lane = None
