"""The monitor, which ends the process if the stream stalls or its topic changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from knowledgepulse_worker.errors import TopicError
from knowledgepulse_worker.kafka.topics import Topic
from knowledgepulse_worker.records.throttle import Throttles
from knowledgepulse_worker.stream.source import Source
from knowledgepulse_worker.stream.watchdog import INTERVAL, Watchdog


class StreamMonitor:
    """Checks that the stream advances and its topic is unchanged.

    Args:
        raw: the raw topic as it was at start.
        stall: seconds that records may wait while none is finished.
        remaining: the ledger offsets still to be read, by partition.
        is_ready: returns whether the worker has been ready; before that, its metadata may be incomplete.
        throttles: the times for which brokers throttle the clients, and nothing advances.
    """

    def __init__(
        self,
        raw: Topic,
        stall: float,
        remaining: Callable[[], Mapping[int, int]],
        is_ready: Callable[[], bool],
        throttles: Throttles,
    ) -> None:
        self._raw = raw
        self._remaining = remaining
        self._is_ready = is_ready
        self._throttles = throttles
        self._stream = Watchdog(stall, "records are waiting, but none was finished")
        # The limit is longer because a rebalance may wait for a slow worker.
        self._recovery = Watchdog(5 * stall, "its ledger's recovery has made no progress")

    async def watch(self, source: Source) -> None:
        """Check forever, every :data:`~knowledgepulse_worker.stream.watchdog.INTERVAL`.

        Raises:
            WorkerError: the client is no longer a member of its group.
            StalledError: a partition stalls; a new process would recover.
            TopicError: the raw topic is gone, or its partition count has changed; a new process would read
                added partitions.
        """
        while True:
            await asyncio.sleep(INTERVAL)
            await self.check(source)

    async def check(self, source: Source) -> None:
        """Check once, and raise the same errors as :meth:`watch`."""
        progress = source.progress
        progress.check_membership()
        self._require_partitions(progress.partition_count())
        await progress.refresh_positions()
        await source.gaps.count_deleted()
        consumer, producer = self._throttles.consumer, self._throttles.producer
        is_held_up = source.is_rebalancing or bool(consumer.remaining or producer.remaining)
        self._stream.check({} if is_held_up else progress.waiting())
        self._recovery.check({} if consumer.remaining else dict(self._remaining()))

    def _require_partitions(self, count: int) -> None:
        added = count > self._raw.partitions
        if count == self._raw.partitions or not (added or self._is_ready()):
            return
        if count == 0:
            raise TopicError(f"{self._raw.name} no longer exists")
        raise TopicError(f"{self._raw.name} now has {count} partitions instead of {self._raw.partitions}")
