"""Detect that a partition's log was truncated, and find where it differs from the log that was read.

A leader that was elected although it lacks records (``unclean.leader.election.enable``) has others at their
offsets. Each record carries the epoch of the leader that wrote it. Where this epoch ends in the log of the
present leader, the logs begin to differ (KIP-320).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from knowledgepulse_kafka.client_types import Place
from knowledgepulse_kafka.record_batches import epoch_of
from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_worker.lane.partition_task import PartitionTask
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.stream.kafka_interfaces import Client

logger = logging.getLogger(__name__)

# Seconds to wait for a leader's answer, so that a leader that is down does not delay the other partitions.
_ANSWER_LIMIT = 1.0


class Truncation:
    """Moves partitions back to the first offset at which their logs differ from what was read.

    Args:
        client: asks the partitions' leaders.
        topic: the raw topic.
        metrics: counts the offsets that are read again.
    """

    def __init__(self, client: Client, topic: str, metrics: Metrics) -> None:
        self._client = client
        self._topic = topic
        self._metrics = metrics

    async def move_back(self, *tasks: PartitionTask) -> list[PartitionTask]:
        """Have the first difference fetched next in the partitions that have one; return their tasks."""
        ends = await self._ends(tasks)
        return [task for task in tasks if self._move_back(task, ends.get(task.partition))]

    async def _ends(self, tasks: Iterable[PartitionTask]) -> Mapping[int, int]:
        """Return the offsets up to which logs can agree with those that were read, where that is known."""
        epochs = {
            Place(self._topic, task.partition): task.epoch
            for task in tasks
            if task.next is not None and task.epoch >= 0
        }
        return {at.partition: end for at, end in (await self._client.epoch_ends(epochs)).items()}

    def _move_back(self, task: PartitionTask, end: int | None) -> bool:
        replaced = task.move_back(end)
        if not replaced:
            return False
        self._metrics.truncated(task.partition, replaced)
        logger.error(
            "partition %d: a leader election has replaced the records of %s from offset %d on, although the "
            "records up to offset %d were scored; reading again from there",
            *(task.partition, self._topic, replaced[0], replaced[-1]),
        )
        return True

    async def move_back_at(self, task: PartitionTask, record: Record) -> bool:
        """Move a partition back if a fetch shows that its log was truncated; return whether to fetch again.

        This may be so if the first record was written under another leader than the last one, or if the
        client went back, because the log ended before its position. If the log agrees up to the expected
        offset nevertheless, the fetch is repeated from there, as it is while the leader does not tell.

        Args:
            task: the partition's task.
            record: the fetch's first record.
        """
        is_behind = task.next is not None and record.offset < task.next
        if not is_behind and epoch_of(record) == task.epoch:
            return False
        try:
            async with asyncio.timeout(_ANSWER_LIMIT):
                end = (await self._ends([task])).get(task.partition)
        except TimeoutError:
            return True
        return self._move_back(task, end) or (is_behind and end is not None)
