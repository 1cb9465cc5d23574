"""Watch the stream from outside its own flow, and end the process when it cannot go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

from worker.errors import TopicError
from worker.kafka.topics import Topic
from worker.stream.watchdog import INTERVAL, Watchdog


class Progress(Protocol):
    """How far the stream is, as :class:`~worker.stream.source.Source` says."""

    def check_membership(self) -> None: ...  # noqa: D102 - as documented there, like all of these
    async def refresh_positions(self) -> None: ...  # noqa: D102
    async def count_skipped(self) -> None: ...  # noqa: D102
    def waiting(self) -> Mapping[int, Hashable]: ...  # noqa: D102
    def partition_count(self) -> int: ...  # noqa: D102


class Guard:
    """Checks every :data:`~worker.stream.watchdog.INTERVAL` that the stream moves and its topic is unchanged.

    Args:
        raw: the raw topic as it was at start.
        stall: seconds that records may wait while none is finished.
        remaining: the ledger offsets still to be read, by partition.
        is_rebalancing: whether a rebalance is under way.
        is_ready: whether the worker has been ready; before that its metadata may be incomplete.
    """

    def __init__(
        self,
        raw: Topic,
        stall: float,
        remaining: Callable[[], Mapping[int, int]],
        is_rebalancing: Callable[[], bool],
        is_ready: Callable[[], bool],
    ) -> None:
        self._raw = raw
        self._remaining = remaining
        self._is_rebalancing = is_rebalancing
        self._is_ready = is_ready
        self._stream = Watchdog(stall, "records wait, and none was finished")
        # What a rebalance waits for may be another worker that takes its time.
        self._recovery = Watchdog(5 * stall, "the recovery of its ledger has come no further")

    async def watch(self, progress: Callable[[], Progress]) -> None:
        """Check for ever.

        Args:
            progress: returns the source, once there is one.

        Raises:
            WorkerError: the client no longer takes part in its group.
            StalledError: a partition stalls; a fresh process would go on.
            TopicError: the raw topic is gone, or has another partition count.
        """
        while True:
            await asyncio.sleep(INTERVAL)
            await self.check(progress())

    async def check(self, progress: Progress) -> None:
        """Check once; see :meth:`watch` for what it raises."""
        progress.check_membership()
        self._require_partitions(progress.partition_count())
        await progress.refresh_positions()
        await progress.count_skipped()
        self._stream.check({} if self._is_rebalancing() else progress.waiting())
        self._recovery.check(dict(self._remaining()))

    def _require_partitions(self, count: int) -> None:
        if count == self._raw.partitions or not self._is_ready():
            return
        if count == 0:
            raise TopicError(f"{self._raw.name} is no longer there")
        raise TopicError(f"{self._raw.name} has {count} partitions now, it had {self._raw.partitions}")
