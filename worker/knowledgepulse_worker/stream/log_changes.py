"""Notice that a log is no longer the one that was read: its topic was recreated, or it was truncated."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from knowledgepulse_kafka.client_types import NotAssignedError
from knowledgepulse_kafka.topic_reader import Record
from knowledgepulse_worker.lane.partition_task import PartitionTask
from knowledgepulse_worker.stream.fetch_positions import FetchPositions
from knowledgepulse_worker.stream.kafka_interfaces import TopicIdentity
from knowledgepulse_worker.stream.truncation import Truncation

logger = logging.getLogger(__name__)

# Seconds between two look-ups of the topic's id and of the logs' epochs while no records arrive.
_LOOK_UP_INTERVAL = 5.0
# Seconds for such a look-up, so that a leader that is down does not delay the others' partitions.
_LOOK_UP_LIMIT = 1.0


class LogChanges:
    """Sets partitions back whose logs have changed.

    Args:
        topic_ids: identifies the raw topic.
        truncation: finds where a log differs from the one that was read.
        positions: the client's positions.
        tasks: returns the tasks of the present assignment, by partition.

    Attributes:
        topic_id: the id of the topic that is read; empty if unknown.
    """

    def __init__(
        self,
        topic_ids: TopicIdentity,
        truncation: Truncation,
        positions: FetchPositions,
        tasks: Callable[[], Mapping[int, PartitionTask]],
    ) -> None:
        self._topic_ids = topic_ids
        self._truncation = truncation
        self._positions = positions
        self._tasks = tasks
        self._starting_over: asyncio.Task[None] | None = None
        self._looked_up = time.monotonic()
        self.topic_id = b""

    async def identify(self, partitions: Collection[int]) -> None:
        """Look up the id of the topic that an assignment reads."""
        self.topic_id = await self._topic_ids.current(partitions)

    async def has_started_over(self, consumed: Sequence[PartitionTask]) -> bool:
        """Read the topic from its beginning if it was recreated; return whether it was.

        Args:
            consumed: the tasks whose partitions have new records.
        """
        if await self._topic_ids.current([task.partition for task in consumed]) == self.topic_id:
            return False
        await self._start_over()
        return True

    async def has_moved_back(self, task: PartitionTask, first: Record) -> bool:
        """Set a partition back if its log was truncated; return whether to fetch again.

        Args:
            task: the partition's task.
            first: the first record of a fetch.
        """
        is_moved = await self._truncation.move_back_at(task, first)
        if is_moved and task.is_current:
            await self._positions.seek_to_next(task)
        return is_moved

    async def look_up_while_idle(self, consumed: Sequence[PartitionTask]) -> None:
        """Check at intervals whether the topic was recreated or a partition's log was truncated.

        Fetches reveal neither if the log now ends at the offset up to which it was read.
        """
        if time.monotonic() - self._looked_up < _LOOK_UP_INTERVAL or not consumed:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_UP_LIMIT):
                topic_id = await self._topic_ids.current([task.partition for task in consumed])
                if topic_id == self.topic_id:
                    await self._go_back_if_truncated(consumed)
            if topic_id != self.topic_id:
                await self._start_over()
        self._looked_up = time.monotonic()

    def close(self) -> None:
        """Stop reading the topic from its beginning, since its partitions are revoked."""
        if self._starting_over is not None:
            self._starting_over.cancel()

    async def _go_back_if_truncated(self, tasks: Sequence[PartitionTask]) -> None:
        for task in await self._truncation.move_back(*tasks):
            if task.is_current:
                await self._positions.seek_to_next(task)

    async def _start_over(self) -> None:
        """Read the topic from its beginning, because it was recreated; do nothing during a rebalance.

        The next assignment detects it again. Nothing would cancel what is started after the rebalance began,
        and without tasks there is no leader to wait for.
        """
        if not self._tasks():
            return
        logger.warning("%s was recreated; reading it from its beginning", self._positions.topic)
        self._starting_over = asyncio.create_task(self._read_from_beginning())
        await asyncio.wait([self._starting_over])
        with suppress(asyncio.CancelledError, NotAssignedError):  # revoked: the next owner detects it
            self._starting_over.result()

    async def _read_from_beginning(self) -> None:
        """Read a recreated topic once the leaders of all partitions know it.

        A lagging leader would serve the former topic's records again and then report the new topic's id.
        """
        tasks = self._tasks()
        topic_id = await self._topic_ids.current(tasks)
        for task in tasks.values():
            task.next = None
        await self._positions.seek_to_beginning(tasks.values())
        self.topic_id = topic_id  # set last, so that an interrupted call is repeated
