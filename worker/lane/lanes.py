"""The lanes of the partitions that this process owns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from worker.journal import Treatment
from worker.lane.lane import Lane, LaneServices
from worker.lane.ledger import Changelog
from worker.lane.records import RawRecord
from worker.lane.shared_lock import SharedLock

logger = logging.getLogger(__name__)

LARGE_BYTES = 65_536
"""Size above which a record blocks the event loop for milliseconds."""
YIELD_FACTOR = 19.0
"""After a large record, its lane yields for this many times the record's processing time."""
YIELD_SHARE = 10.0
"""A yield lasts at most ``limits.stall`` divided by this, so that the lane never counts as stalled."""


class Lanes:
    """Routes records to their lanes, and reports the offsets to commit.

    Args:
        services: dependencies shared by all lanes.
        changelog_of: returns a partition's recovered changelog.
        on_failure: called on a lane's fatal error; the process must then end.

    Attributes:
        commit_requested: set when a lane waits for a commit.
    """

    def __init__(
        self,
        services: LaneServices,
        changelog_of: Callable[[int], Changelog],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.commit_requested = asyncio.Event()
        self._services = services
        self._changelog_of = changelog_of
        self._on_failure = on_failure
        self._lanes: dict[int, Lane] = {}
        self._committed: dict[int, int] = {}
        self._journal = services.journal
        self._lock = SharedLock()
        self._is_open = False

    async def take(self, record: RawRecord) -> None:
        """Hand a record to its partition's lane; return when the lane has taken it.

        Before :meth:`open`, and again after :meth:`drain`, records are ignored: they will be redelivered to
        the partition's next owner.
        """
        if not self._is_open:
            return
        try:
            await self._dispatch(record)
        except Exception as error:  # noqa: BLE001 - Faust would restart the actor and skip the record
            self._is_open = False
            self._on_failure(error)

    async def _dispatch(self, record: RawRecord) -> None:
        """Hand over a record; a suspect only while nothing else is in flight."""
        if not self._journal.has_suspects:
            await self._hand_over(record)
            return
        lock = self._lock
        treatment = self._journal.treatment(record.location)
        is_isolated = treatment is not None and treatment is not Treatment.WATCHED
        async with lock.exclusive() if is_isolated else lock.shared():
            if lock is not self._lock:
                return  # the assignment has ended
            if is_isolated:
                await self._wait_idle()
            await self._hand_over(record)
            if is_isolated:
                await self._wait_idle()

    async def _wait_idle(self) -> None:
        for lane in list(self._lanes.values()):
            await lane.wait_idle()

    async def _hand_over(self, record: RawRecord) -> None:
        lane = self._lanes.get(record.partition)
        if lane is not None and (record.offset < lane.next_offset or record.topic_id != lane.topic_id):
            logger.warning(
                "partition %d: position moved back from offset %d to %d",
                record.partition,
                lane.next_offset,
                record.offset,
            )
            await lane.drain(self._services.limits.drain)
            if not self._is_open:
                return
            lane = None
        if lane is None:
            lane = self._lanes[record.partition] = Lane(
                record,
                self._committed.get(record.partition, 0),
                self._changelog_of(record.partition),
                self._services,
                self._on_failure,
                self.commit_requested.set,
            )
            await lane.open()
        seconds = await lane.take(record)
        if record.size > LARGE_BYTES and len(self._lanes) > 1:
            await asyncio.sleep(min(YIELD_FACTOR * seconds, self._services.limits.stall / YIELD_SHARE))

    def watermarks(self) -> dict[int, int]:
        """Return every lane's watermark by partition."""
        return {partition: lane.watermark for partition, lane in self._lanes.items()}

    def committed(self, offsets: Mapping[int, int]) -> None:
        """Record the group's committed offsets, by partition."""
        for partition, offset in offsets.items():
            self._committed[partition] = offset
            self._journal.forget(partition, below=offset)
            lane = self._lanes.get(partition)
            if lane is not None:
                lane.committed(offset)

    def open(self) -> None:
        """Start taking records."""
        self._is_open = True

    async def drain(self) -> None:
        """Stop taking records, and drain all lanes at once.

        Raises:
            ExceptionGroup: the DeliveryErrors of the lanes whose records were not confirmed in time.
        """
        self._close()
        limit = self._services.limits.drain
        async with asyncio.TaskGroup() as group:
            for lane in self._lanes.values():
                group.create_task(lane.drain(limit))

    async def abandon(self) -> None:
        """Stop taking records, and close all lanes at once: their partitions belong to another member."""
        self._close()
        for lane in self._lanes.values():
            await lane.close()
        self.clear()

    def _close(self) -> None:
        self._is_open = False
        self._lock = SharedLock()

    def clear(self) -> None:
        """Drop the lanes, once they are drained and committed, or closed.

        Committing their watermarks after the next assignment would move the group back behind what another
        worker has since finished.
        """
        self._lanes.clear()
        self._committed.clear()
