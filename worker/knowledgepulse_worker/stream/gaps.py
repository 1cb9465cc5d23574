"""Count the offsets that were deleted before they were fetched."""

from __future__ import annotations

import asyncio
import logging

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.stream.client import Client
from knowledgepulse_worker.stream.partition import Partition

logger = logging.getLogger(__name__)

# Seconds for a look-up of the partitions' beginning offsets; retried a second later.
_BEGIN_LIMIT = 1.0
# Maximum number of offset gaps awaiting that look-up.
_MAX_GAPS = 1000


class Gaps:
    """The gaps between expected and fetched offsets.

    After a deletion, the client resumes at the first remaining record. Only the part of a gap below the
    partition's beginning was deleted, since transactions and compaction leave gaps, too.

    Args:
        client: looks up the partitions' beginnings.
        metrics: counts the deleted offsets.
    """

    def __init__(self, client: Client, metrics: Metrics) -> None:
        self._client = client
        self._metrics = metrics
        self._gaps: list[tuple[TopicPartition, range]] = []

    def note(self, partition: Partition, offset: int) -> None:
        """Note the offset at which a fetch of a partition began.

        Records before a position that was set back have outputs.
        """
        if partition.expected is None:
            return
        unread = range(max(partition.expected, partition.done), offset)
        if unread and len(self._gaps) < _MAX_GAPS:
            self._gaps.append((partition.at, unread))

    async def count_deleted(self) -> None:
        """Count and log the deleted offsets of the gaps noted since the last call."""
        gaps, self._gaps = self._gaps, []
        if not gaps:
            return
        try:
            async with asyncio.timeout(_BEGIN_LIMIT):
                begins = await self._client.beginning_offsets({at for at, _ in gaps})
        except (KafkaError, TimeoutError):
            self._gaps = gaps + self._gaps
            return
        for at, gap in gaps:
            deleted = gap[: max(0, begins[at] - gap.start)]
            if deleted:
                self._metrics.skipped(len(deleted))
                logger.error(
                    "partition %d: offsets %d to %d were deleted from %s before they were read",
                    at.partition,
                    deleted[0],
                    deleted[-1],
                    at.topic,
                )
