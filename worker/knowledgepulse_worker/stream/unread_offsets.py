"""Count the offsets that no worker reads: deleted before, or passed over by the group's position."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass

from knowledgepulse_kafka.client_types import Place, RequestError
from knowledgepulse_kafka.group_member import GroupMember
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.observe.recent import UnreadOffsetReason

logger = logging.getLogger(__name__)

# Seconds for a look-up of the partitions' beginning offsets; retried a second later.
_BEGIN_LIMIT = 1.0
# Maximum number of offset gaps awaiting that look-up, and of positions that are remembered.
_MAX_GAPS = 1000


@dataclass(frozen=True, slots=True)
class PassedOver:
    """The offsets between the workers' own position in a partition and one that none of them has committed.

    Attributes:
        at: the partition.
        start: the workers' position; None if they have never committed any.
        stop: the group's position.
    """

    at: Place
    start: int | None
    stop: int


class UnreadOffsets:
    """The gaps between expected and fetched offsets, and between the workers' and the group's positions.

    After a deletion, the client resumes at the first remaining record. Only the part of a gap below the
    partition's beginning was deleted, since transactions and compaction leave gaps, too.

    Args:
        client: looks up the partitions' beginnings.
        metrics: counts the offsets.
    """

    def __init__(self, client: GroupMember, metrics: Metrics) -> None:
        self._client = client
        self._metrics = metrics
        self._gaps: list[tuple[Place, range]] = []
        self._counted: set[PassedOver] = set()

    def note(self, at: Place, unread: range) -> None:
        """Note the offsets before the first record of a fetch that were not read."""
        if unread and len(self._gaps) < _MAX_GAPS:
            self._gaps.append((at, unread))

    async def count_deleted(self) -> None:
        """Count and log the deleted offsets of the gaps noted since the last call."""
        gaps, self._gaps = self._gaps, []
        if not gaps:
            return
        try:
            async with asyncio.timeout(_BEGIN_LIMIT):
                begins = await self._client.beginning_offsets({at for at, _ in gaps})
        except (RequestError, TimeoutError):
            self._gaps = gaps + self._gaps
            return
        for at, gap in gaps:
            deleted = gap[: max(0, begins[at] - gap.start)]
            if deleted:
                self._count(at.partition, deleted, "deleted")
                logger.error(
                    "partition %d: offsets %d to %d were deleted from %s before they were read",
                    at.partition,
                    deleted[0],
                    deleted[-1],
                    at.topic,
                )

    async def count_passed_over(self, passed: PassedOver) -> None:
        """Count and log the offsets that an assignment begins behind, before the first record is read.

        Until the next commit, further assignments begin there, too; they count once.
        """
        if passed in self._counted or len(self._counted) == _MAX_GAPS:
            return
        at, start = passed.at, passed.start
        if start is None:
            start = 0
            with suppress(RequestError, TimeoutError):
                async with asyncio.timeout(_BEGIN_LIMIT):
                    start = (await self._client.beginning_offsets({at}))[at]
        unread = range(start, passed.stop)
        self._counted.add(passed)  # only now, since a rebalance may end the look-up
        if unread:
            self._count(at.partition, unread, "passed_over")
            logger.error(
                "partition %d: offsets %d to %d of %s were not read, because an operator or another client, "
                "not a worker, has set the group's position behind them; continuing from there",
                at.partition,
                unread[0],
                unread[-1],
                at.topic,
            )

    def _count(self, partition: int, offsets: range, reason: UnreadOffsetReason) -> None:
        self._metrics.stream.skipped(len(offsets))
        self._metrics.recent.skipped(partition, offsets, reason)
