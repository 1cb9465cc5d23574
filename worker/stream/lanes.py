"""The lanes of the partitions that this process owns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from worker.stream.lane import Lane, LaneServices
from worker.stream.ledger import Changelog, Entry
from worker.stream.records import RawRecord

logger = logging.getLogger(__name__)

LARGE_BYTES = 65_536
"""A record beyond this keeps the event loop for milliseconds."""
GIVE_WAY = 19.0
"""How many times as long its lane then leaves the event loop to the others."""


class Lanes:
    """Hands records to their lanes, and says what may be committed.

    Args:
        services: what lanes share.
        changelog_of: a partition's changelog, recovered.
        on_failure: told when a lane can't go on; the process must then end.
    """

    def __init__(
        self,
        services: LaneServices,
        changelog_of: Callable[[int], Changelog],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.commit_wanted = asyncio.Event()
        self._services = services
        self._changelog_of = changelog_of
        self._on_failure = on_failure
        self._lanes: dict[int, Lane] = {}
        self._committed: dict[int, int] = {}
        self._taking = False

    async def take(self, record: RawRecord) -> None:
        """Hand a record to its partition's lane; returns when the lane has room for it.

        Before :meth:`reopen`, and again after :meth:`drain`, records are ignored: they will be delivered
        again, to whoever then owns the partition.
        """
        if not self._taking:
            return
        try:
            await self._hand_over(record)
        except Exception as error:  # noqa: BLE001 - Faust would restart the actor, and go on with the next record
            self._taking = False
            self._on_failure(error)

    async def _hand_over(self, record: RawRecord) -> None:
        lane = self._lanes.get(record.partition)
        if lane is not None and record.offset < lane.next_offset:
            logger.warning(
                "partition %d went back from offset %d to %d",
                record.partition,
                lane.next_offset,
                record.offset,
            )
            await lane.drain(self._services.limits.drain)
            if not self._taking:
                return
            lane = None
        if lane is None:
            lane = self._lanes[record.partition] = Lane(
                record.partition,
                record.offset,
                self._committed.get(record.partition, 0),
                self._changelog_of(record.partition),
                self._services,
                self._on_failure,
                self.commit_wanted.set,
            )
            await lane.open()
        seconds = await lane.take(record)
        if record.size > LARGE_BYTES and len(self._lanes) > 1:
            await asyncio.sleep(GIVE_WAY * seconds)

    def newest_before(self, partition: int, offset: int) -> Entry | None:
        """Return what a partition's ledger knows of the last record before an offset."""
        return self._changelog_of(partition).newest_before(offset)

    def watermarks(self) -> dict[int, int]:
        """Return every lane's watermark by its partition."""
        return {partition: lane.watermark for partition, lane in self._lanes.items()}

    def committed(self, offsets: Mapping[int, int]) -> None:
        """Note where the group is, by partition."""
        for partition, offset in offsets.items():
            self._committed[partition] = offset
            lane = self._lanes.get(partition)
            if lane is not None:
                lane.committed(offset)

    async def drain(self) -> None:
        """Take no more, and drain every lane at once.

        Raises:
            ExceptionGroup: of the DeliveryErrors of lanes that the broker did not confirm in time.
        """
        self._taking = False
        limit = self._services.limits.drain
        async with asyncio.TaskGroup() as group:
            for lane in self._lanes.values():
                group.create_task(lane.drain(limit))

    async def abandon(self) -> None:
        """Take no more, and close every lane at once: its partition belongs to somebody else."""
        self._taking = False
        for lane in self._lanes.values():
            await lane.close()
        self.let_go()

    def let_go(self) -> None:
        """Forget the lanes, once they are drained and committed, or closed.

        Their watermarks must not be committed later: after the next assignment that would move the group back
        behind what another worker has finished meanwhile.
        """
        self._lanes.clear()
        self._committed.clear()

    def reopen(self) -> None:
        """Take records, now that the ledgers are recovered."""
        self._taking = True
