"""Notice that a log is no longer the one that was read: its topic was recreated, or it was truncated.

A leader that was elected although it lacks records (``unclean.leader.election.enable``) has others at their
offsets. Each record carries the epoch of the leader that wrote it. Where this epoch ends in the log of the
present leader, the logs begin to differ (KIP-320).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from knowledgepulse_kafka.client_types import NotAssignedError, Place
from knowledgepulse_kafka.group_member import GroupMember
from knowledgepulse_kafka.record_batches import epoch_of
from knowledgepulse_kafka.topic_id import TopicIds
from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_worker.lane.partition_task import PartitionTask
from knowledgepulse_worker.observe.metrics import Metrics

logger = logging.getLogger(__name__)

# Seconds between two look-ups of the topic's id and of the logs' epochs while no records arrive.
_LOOK_UP_INTERVAL = 5.0
# Seconds for a look-up, so that a leader that is down does not delay the other partitions.
_LOOK_UP_LIMIT = 1.0


class LogChanges:
    """Sets partitions back whose logs have changed.

    Args:
        client: fetches from where a partition is set back to; asks the partitions' leaders.
        topic: the raw topic.
        topic_ids: identifies it.
        metrics: counts the offsets that are read again.
        tasks: returns the tasks of the present assignment, by partition.

    Attributes:
        topic_id: the id of the topic that is read; empty if unknown.
    """

    def __init__(
        self,
        client: GroupMember,
        topic: str,
        topic_ids: TopicIds,
        metrics: Metrics,
        tasks: Callable[[], Mapping[int, PartitionTask]],
    ) -> None:
        self._client = client
        self._topic = topic
        self._topic_ids = topic_ids
        self._metrics = metrics
        self._tasks = tasks
        self._starting_over: asyncio.Task[None] | None = None
        self._looked_up = time.monotonic()
        self.topic_id = b""

    async def look_up_while_idle(self, consumed: Sequence[PartitionTask]) -> None:
        """Check at intervals whether the topic was recreated or a partition's log was truncated.

        Fetches reveal neither if the log now ends at the offset up to which it was read.
        """
        is_due = time.monotonic() - self._looked_up >= _LOOK_UP_INTERVAL or self._client.has_lost_topic
        if not (consumed and is_due):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_UP_LIMIT):
                topic_id = await self._topic_ids.current([task.partition for task in consumed])
                if topic_id == self.topic_id:
                    ends = await self._ends(consumed)
                    for task in consumed:
                        if self._move_back(task, ends.get(task.place)):
                            self._fetch_next(task)
            if topic_id != self.topic_id:
                await self._start_over()
        self._looked_up = time.monotonic()

    # --- a recreated topic

    async def identify(self, partitions: Collection[int]) -> None:
        """Look up the id of the topic that an assignment reads."""
        self._read(await self._topic_ids.current(partitions))

    def _read(self, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self._client.read_by_id(self._topic, topic_id)

    async def has_started_over(self, consumed: Sequence[PartitionTask]) -> bool:
        """Read the topic from its beginning if it was recreated; return whether it was.

        What is fetched by the topic's id is of this topic. Otherwise, its leaders are asked for the id.

        Args:
            consumed: the tasks whose partitions have new records.
        """
        if self._client.is_read_by_id:
            return False
        if await self._topic_ids.current([task.partition for task in consumed]) == self.topic_id:
            return False
        await self._start_over()
        return True

    def close(self) -> None:
        """Stop reading the topic from its beginning, since its partitions are revoked."""
        if self._starting_over is not None:
            self._starting_over.cancel()

    async def _start_over(self) -> None:
        """Read the topic from its beginning, because it was recreated; do nothing during a rebalance.

        The next assignment detects it again. Nothing would cancel what is started after the rebalance began,
        and without tasks there is no leader to wait for.
        """
        if not self._tasks():
            return
        logger.warning("%s was recreated; reading it from its beginning", self._topic)
        self._starting_over = asyncio.create_task(self._read_from_beginning())
        await asyncio.wait([self._starting_over])
        with suppress(asyncio.CancelledError, NotAssignedError):  # revoked: the next owner detects it
            self._starting_over.result()

    async def _read_from_beginning(self) -> None:
        """Read a recreated topic once the leaders of all partitions know it.

        A lagging leader would serve the former topic's records again and then report the new topic's id.
        """
        tasks = self._tasks()
        # Set first, for a partition whose recovery ends meanwhile. If the rest is interrupted, the partitions
        # are revoked, and the next assignment identifies the topic before it reads any.
        self._read(await self._topic_ids.current(tasks))
        for task in tasks.values():
            task.next = None
        await self._client.seek_to_beginning(*(task.place for task in tasks.values()))

    # --- a truncated log

    async def has_moved_back(self, task: PartitionTask, first: Record) -> bool:
        """Set a partition back if a fetch shows that its log was truncated; return whether to fetch again.

        This may be so if the first record was written under another leader than the last one, or if the
        client went back, because the log ended before its position. If the log agrees up to the expected
        offset nevertheless, the fetch is repeated from there, as it is while the leader does not tell.

        Args:
            task: the partition's task.
            first: the first record of a fetch.
        """
        is_behind = task.next is not None and first.offset < task.next
        if not is_behind and epoch_of(first) == task.epoch:
            return False
        try:
            async with asyncio.timeout(_LOOK_UP_LIMIT):
                end = (await self._ends([task])).get(task.place)
        except TimeoutError:
            is_moved = True
        else:
            is_moved = self._move_back(task, end) or (is_behind and end is not None)
        if is_moved:
            self._fetch_next(task)
        return is_moved

    async def _ends(self, tasks: Iterable[PartitionTask]) -> Mapping[Place, int]:
        """Return the offsets up to which logs can agree with those that were read, where that is known."""
        epochs = {task.place: task.epoch for task in tasks if task.next is not None and task.epoch >= 0}
        return await self._client.epoch_ends(epochs)

    def _move_back(self, task: PartitionTask, end: int | None) -> bool:
        replaced = task.move_back(end)
        if not replaced:
            return False
        self._metrics.stream.truncated(len(replaced))
        self._metrics.recent.truncated(task.partition, replaced)
        logger.error(
            "partition %d: a leader election has replaced the records of %s from offset %d on, although the "
            "records up to offset %d were scored; reading again from there",
            *(task.partition, self._topic, replaced[0], replaced[-1]),
        )
        return True

    def _fetch_next(self, task: PartitionTask) -> None:
        """Fetch a task's next record; do nothing if its partition was revoked, as the next owner reads it."""
        if task.is_current and task.next is not None:
            with suppress(NotAssignedError):
                self._client.seek(task.place, task.next)
