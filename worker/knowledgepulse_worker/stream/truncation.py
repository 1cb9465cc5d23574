"""Detect that a partition's log was truncated, and find where it differs from the log that was read.

A leader that was elected although it lacks records (``unclean.leader.election.enable``) has others at their
offsets. Each record carries the epoch of the leader that wrote it. Where this epoch ends in the log of the
present leader, the logs begin to differ (KIP-320).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from aiokafka import TopicPartition

from knowledgepulse_worker.kafka.topic_reader import Record
from knowledgepulse_worker.kafka.wire.record_batches import epoch_of
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.stream.client import Client
from knowledgepulse_worker.stream.partition import Partition

logger = logging.getLogger(__name__)

# Seconds to wait for a leader's answer, so that a leader that is down does not delay the other partitions.
_ANSWER_LIMIT = 1.0


class Truncation:
    """Moves partitions back to the first offset at which their logs differ from what was read.

    Args:
        client: asks the partitions' leaders.
        metrics: counts the offsets that are read again.
    """

    def __init__(self, client: Client, metrics: Metrics) -> None:
        self._client = client
        self._metrics = metrics

    async def move_back(self, *partitions: Partition) -> list[Partition]:
        """Expect the first difference next in the partitions that have one; return these partitions."""
        ends = await self._ends(partitions)
        return [one for one in partitions if self._move_back(one, ends.get(one.at))]

    async def _ends(self, partitions: Iterable[Partition]) -> Mapping[TopicPartition, int]:
        """Return the offsets up to which logs can agree with those that were read, where that is known."""
        epochs = {one.at: one.epoch for one in partitions if one.expected is not None and one.epoch >= 0}
        return await self._client.epoch_ends(epochs)

    def _move_back(self, partition: Partition, end: int | None) -> bool:
        expected = partition.expected
        if expected is None or end is None or end >= expected:
            return False
        partition.expected = end
        partition.done = min(partition.done, end)
        self._metrics.truncated(partition.at.partition, range(end, expected))
        logger.error(
            "partition %d: a leader election has replaced the records of %s from offset %d on, although the "
            "records up to offset %d were scored; reading again from there",
            *(partition.at.partition, partition.at.topic, end, expected - 1),
        )
        return True

    async def move_back_at(self, partition: Partition, record: Record) -> bool:
        """Move a partition back if a fetch shows that its log was truncated; return whether to fetch again.

        This may be so if the first record was written under another leader than the last one, or if the
        client went back, because the log ended before its position. If the log agrees up to the expected
        offset nevertheless, the fetch is repeated from there, as it is while the leader does not tell.

        Args:
            partition: the partition.
            record: the fetch's first record.
        """
        is_behind = partition.expected is not None and record.offset < partition.expected
        if not is_behind and epoch_of(record) == partition.epoch:
            return False
        try:
            async with asyncio.timeout(_ANSWER_LIMIT):
                end = (await self._ends([partition])).get(partition.at)
        except TimeoutError:
            return True
        return self._move_back(partition, end) or (is_behind and end is not None)
