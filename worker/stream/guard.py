"""Monitor the stream from the outside, and end the process if it stalls or its topic changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

from worker.errors import TopicError
from worker.kafka.topics import Topic
from worker.stream.watchdog import INTERVAL, Watchdog


class Progress(Protocol):
    """The stream's progress, as :class:`~worker.stream.source.Source` reports it."""

    def check_membership(self) -> None: ...  # noqa: D102 - as documented there, like all of these
    async def refresh_positions(self) -> None: ...  # noqa: D102
    async def count_skipped(self) -> None: ...  # noqa: D102
    def waiting(self) -> Mapping[int, Hashable]: ...  # noqa: D102
    def partition_count(self) -> int: ...  # noqa: D102


class Guard:
    """Checks that the stream advances and its topic is unchanged.

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
        # Longer, since a rebalance may wait for another, slow worker.
        self._recovery = Watchdog(5 * stall, "its ledger's recovery has made no progress")

    async def watch(self, progress: Callable[[], Progress]) -> None:
        """Check forever, every :data:`~worker.stream.watchdog.INTERVAL`.

        Args:
            progress: returns the source, once there is one.

        Raises:
            WorkerError: the client is no longer a member of its group.
            StalledError: a partition stalls; a new process would recover.
            TopicError: the raw topic is gone, or its partition count has changed.
        """
        while True:
            await asyncio.sleep(INTERVAL)
            await self.check(progress())

    async def check(self, progress: Progress) -> None:
        """Check once; raises as :meth:`watch` does."""
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
            raise TopicError(f"{self._raw.name} no longer exists")
        raise TopicError(f"{self._raw.name} now has {count} partitions instead of {self._raw.partitions}")
