"""The lanes of the owned partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from knowledgepulse_worker.lane.commit import commit
from knowledgepulse_worker.lane.lane import Lane, Services
from knowledgepulse_worker.lane.ledger import Changelog
from knowledgepulse_worker.lane.shared_lock import SharedLock
from knowledgepulse_worker.records.journal import Treatment
from knowledgepulse_worker.records.publisher import Publish
from knowledgepulse_worker.records.record import RawRecord

logger = logging.getLogger(__name__)

LARGE_BYTES = 65_536
"""Size in bytes above which a record blocks the event loop for milliseconds."""

YIELD_FACTOR = 19.0
"""The factor by which a lane's pause after a large record exceeds the record's processing time."""

YIELD_SHARE = 10.0
"""The divisor of ``limits.stall`` that bounds such a pause, so that the lane never counts as stalled."""


_Fetched: TypeAlias = tuple[Sequence[RawRecord], Callable[[], None]]


@dataclass
class _Assignment:
    """The state of an assignment of partitions, which ends with it.

    Attributes:
        lanes: the lanes by partition, created with the partitions' first records.
        lock: held exclusively while a suspect is processed.
        queues: by partition, the records of each fetch that are not taken, and what to call once they are.
        takers: take the records of each partition in order.
        is_over: whether records are ignored, since the partition's next owner reads them.
    """

    lanes: dict[int, Lane] = field(default_factory=dict)
    lock: SharedLock = field(default_factory=SharedLock)
    queues: dict[int, asyncio.Queue[_Fetched]] = field(default_factory=dict)
    takers: list[asyncio.Task[None]] = field(default_factory=list)
    is_over: bool = False

    async def wait_idle(self) -> None:
        """Wait until nothing is in flight or the lanes close."""
        for lane in list(self.lanes.values()):
            await lane.wait_idle()


class Lanes:
    """Routes records to their lanes and commits what the lanes complete.

    Args:
        services: dependencies shared by all lanes.
        changelog_of: returns a partition's recovered changelog.
        on_failure: called on a lane's fatal error; the process must then end.

    Attributes:
        commit_requested: set when a lane waits for a commit.
    """

    def __init__(
        self,
        services: Services,
        changelog_of: Callable[[int], Changelog],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.commit_requested = asyncio.Event()
        self._services = services
        self._changelog_of = changelog_of
        self._on_failure = on_failure
        self._journal = services.journal
        self._assignment = _Assignment(is_over=True)

    def feed(self, records: Sequence[RawRecord], done: Callable[[], None]) -> None:
        """Have a partition's records taken in order, without waiting; ignore them once closed.

        Args:
            records: the records of a fetch.
            done: called once all of them are taken.
        """
        assignment, partition = self._assignment, records[0].partition
        if assignment.is_over:
            return
        if partition not in assignment.queues:
            queue = assignment.queues[partition] = asyncio.Queue()
            assignment.takers.append(asyncio.create_task(self._take_from(queue)))
        assignment.queues[partition].put_nowait((records, done))

    async def _take_from(self, queue: asyncio.Queue[_Fetched]) -> None:
        while True:
            records, done = await queue.get()
            for record in records:
                await self.take(record)
            done()

    async def take(self, record: RawRecord) -> None:
        """Hand a record to its partition's lane; return when the lane has taken it.

        Before :meth:`open` and after :meth:`close`, records are ignored, since the partition's next owner
        reads them.
        """
        assignment = self._assignment
        try:
            await self._dispatch(record, assignment)
        except Exception as error:  # noqa: BLE001 - the task would only log it
            assignment.is_over = True
            self._on_failure(error)

    async def _dispatch(self, record: RawRecord, assignment: _Assignment) -> None:
        """Hand over a record; if it is a suspect, only while nothing else is in flight."""
        if not self._journal.has_suspects:
            await self._hand_over(record, assignment)
            return
        lock = assignment.lock
        treatment = self._journal.treatment(record.location)
        is_isolated = treatment is not None and treatment is not Treatment.WATCHED
        async with lock.exclusive() if is_isolated else lock.shared():
            if is_isolated:
                await assignment.wait_idle()
            await self._hand_over(record, assignment)
            if is_isolated:
                await assignment.wait_idle()

    async def _hand_over(self, record: RawRecord, assignment: _Assignment) -> None:
        """Hand over a record unless its assignment has ended, since nothing would commit a new lane."""
        if assignment.is_over:
            return
        lane = assignment.lanes.get(record.partition)
        if lane is not None and (record.offset < lane.next_offset or record.topic_id != lane.topic_id):
            logger.warning(
                "partition %d: position moved back from offset %d to %d",
                record.partition,
                lane.next_offset,
                record.offset,
            )
            await lane.wait_idle()
            if assignment.is_over:
                return
            lane = None
        if lane is None:
            lane = assignment.lanes[record.partition] = Lane(
                record,
                self._changelog_of(record.partition),
                self._services,
                self._on_failure,
                self.commit_requested.set,
            )
            await lane.open()
        seconds = await lane.take(record)
        if record.size > LARGE_BYTES and len(assignment.lanes) > 1:
            await asyncio.sleep(
                min(YIELD_FACTOR * seconds, self._services.settings.limits.stall / YIELD_SHARE)
            )

    def positions(self) -> dict[int, int]:
        """Return every lane's position: the offset below which every record is committed."""
        return {partition: lane.position for partition, lane in self._assignment.lanes.items()}

    def refresh_gauges(self) -> None:
        """Refresh the gauges before a scrape."""
        lanes, metrics = self._assignment.lanes, self._services.metrics
        records = sum(lane.in_flight for lane in lanes.values())
        metrics.in_flight(records, sum(lane.in_flight_bytes for lane in lanes.values()))
        for partition, lane in lanes.items():
            metrics.cache_size(partition, lane.cached)

    async def commit(self, publish: Publish) -> Mapping[int, int]:
        """Commit the complete records of all lanes; return the new positions by partition.

        Nothing is committed as long as a broker throttles the producer.

        Raises:
            LostPartitionsError: other members may own the partitions.
            DeliveryError: the transaction failed, and the process must end.
        """
        services, lanes = self._services, list(self._assignment.lanes.values())
        throttle = services.throttles.producer
        if throttle.remaining:
            return {}
        positions = await commit(
            lanes,
            publish,
            services.replacements,
            services.metrics,
            is_throttled=throttle.recent > 0,
        )
        for partition, offset in positions.items():
            self._journal.forget(partition, below=offset)
        return positions

    def open(self) -> None:
        """Start taking the records of a new assignment."""
        self._assignment = _Assignment()

    def close(self) -> None:
        """Stop at once and drop the lanes; the next owners read what is not committed."""
        self._assignment.is_over = True
        for taker in self._assignment.takers:
            taker.cancel()
        for lane in self._assignment.lanes.values():
            lane.close()
        self._assignment = _Assignment(is_over=True)
