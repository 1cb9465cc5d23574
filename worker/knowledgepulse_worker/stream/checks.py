"""Checks that end the process: that the stream advances, and that its topics are unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from knowledgepulse_kafka.client_types import RequestError
from knowledgepulse_kafka.errors import TopicError
from knowledgepulse_kafka.request_waits import READING, TRANSACTION
from knowledgepulse_kafka.throttle import Throttles
from knowledgepulse_kafka.topic_reader import Reader
from knowledgepulse_kafka.topics import Topic, missing_topics
from knowledgepulse_kafka.wait import Wait
from knowledgepulse_worker.errors import EXPECTED, StalledError
from knowledgepulse_worker.http.probes import Readiness
from knowledgepulse_worker.settings import REMEDY
from knowledgepulse_worker.stream.progress import Progress
from knowledgepulse_worker.stream.source import Source

CHECK_INTERVAL = 1.0
"""Seconds between two checks."""

ANSWER_LIMIT = 10.0
"""Seconds for a leader to answer on a new connection."""


async def repeat(check: Callable[[], Awaitable[None]], interval: float) -> None:
    """Check at intervals, until a check fails."""
    while True:
        await asyncio.sleep(interval)
        await check()


class Checks:
    """The checks of a worker's stream.

    Args:
        source: the source.
        progress: its progress.
        raw: the raw topic as it was at the start.
        stall: seconds that records may wait while none is finished.
        readiness: whether the worker has been ready; before that, its metadata may be incomplete.
        reader: returns a reader that connects anew to the brokers.
        throttles: the times for which brokers throttle the clients, and nothing advances.
    """

    def __init__(
        self,
        source: Source,
        progress: Progress,
        raw: Topic,
        *,
        stall: float,
        readiness: Readiness,
        reader: Callable[[], AbstractAsyncContextManager[Reader]],
        throttles: Throttles,
    ) -> None:
        self._source = source
        self._progress = progress
        self._raw = raw
        self._readiness = readiness
        self._throttles = throttles
        self._reader = reader
        self._stream = Watchdog(
            stall,
            "records are waiting, but none was finished",
            waits=lambda: (
                *progress.waits(READING),
                *source.session.publisher.waits.current(TRANSACTION),
            ),
        )
        self._leaders = Watchdog(stall, "its leader answers, but not on this connection")
        # The limit is longer because a rebalance may wait for a slow worker.
        self._recovery = Watchdog(5 * stall, "its ledger's recovery has made no progress")
        self._membership = Watchdog(5 * stall, "its coordinator has not answered", "group")

    async def check(self) -> None:
        """Check once; to be called every :data:`CHECK_INTERVAL`.

        Raises:
            MembershipError: the client is no longer a member of its group.
            StalledError: a partition or the group stalls; a new process would recover.
            TopicError: the raw topic is gone, or its partition count has changed; a new process would read
                added partitions.
        """
        progress = self._progress
        self._source.session.check()  # the worker may be waiting for its first records
        await self._require_partitions(progress.partition_count())
        await progress.refresh_positions()
        await self._source.unread_offsets.count_deleted()
        consumer, producer = self._throttles.consumer, self._throttles.producer
        is_held_up = bool(consumer.remaining or producer.remaining)
        self._stream.check({} if is_held_up else progress.waiting())
        await self._check_answers(self._leaders, lambda: {} if consumer.remaining else progress.silent())
        self._recovery.check({} if consumer.remaining else dict(progress.remaining()))
        await self._check_answers(
            self._membership,
            lambda: {} if consumer.remaining else {progress.group: progress.coordinator_answered},
        )

    async def _check_answers(self, watchdog: Watchdog, silent: Callable[[], Mapping[Any, Hashable]]) -> None:
        """Check that no broker is silent to this process alone: a new one cannot mend more."""
        try:
            watchdog.check(silent())
        except StalledError:
            if await self._answer(silent()):
                watchdog.check(silent())  # its answer may have come on the old connection, too
            else:
                watchdog.reset()

    async def _answer(self, silent: Iterable[Any]) -> bool:
        """Return whether the leaders of partitions answer on new connections; for a group, of one."""
        with suppress(*EXPECTED, RequestError, TimeoutError):
            async with asyncio.timeout(ANSWER_LIMIT), self._reader() as reader:
                for key in silent:
                    await reader.bounds(self._raw.name, key if isinstance(key, int) else 0)
                return True
        return False

    async def _require_partitions(self, count: int) -> None:
        added = count > self._raw.partitions
        if count == self._raw.partitions or not (added or not self._readiness.reasons):
            return
        if count == 0:
            if await self._progress.is_topic_gone():
                raise TopicError(f"{self._raw.name} no longer exists, or may no longer be described")
            return
        raise TopicError(f"{self._raw.name} now has {count} partitions instead of {self._raw.partitions}")


class Watchdog:
    """Measures how long partitions have been waiting without progress.

    Args:
        limit: seconds after which a partition counts as stalled.
        problem: describes the stall in the error.
        what: what waits.
        waits: returns what is waited for, which the error tells.
    """

    def __init__(
        self,
        limit: float,
        problem: str,
        what: str = "partition",
        waits: Callable[[], Iterable[Wait]] = tuple,
    ) -> None:
        self._limit = limit
        self._waits = waits
        self._problem = problem
        self._what = what
        self._progress: dict[Any, Hashable] = {}
        self._waited: dict[Any, float] = {}

    def check(self, waiting: Mapping[Any, Hashable]) -> None:
        """Check the partitions with waiting records; to be called every :data:`CHECK_INTERVAL`.

        Time is measured in calls and not by the clock, since a suspended process has not stalled.

        Args:
            waiting: the progress of each partition with waiting records.

        Raises:
            StalledError: a partition has made no progress for longer than the limit.
        """
        self._waited = {
            partition: self._waited[partition] + CHECK_INTERVAL
            if progress == self._progress.get(partition)
            else 0.0
            for partition, progress in waiting.items()
        }
        self._progress = dict(waiting)
        stalled = [partition for partition, seconds in self._waited.items() if seconds > self._limit]
        if stalled:
            numbers = ", ".join(map(str, stalled))
            problem = f"{self._problem} for {self._limit:g} s (limits.stall)"
            waited = "; ".join(map(str, self._waits()))
            raise StalledError(
                f"{self._what} {numbers}: {problem}" + (f"; waited for {waited}" if waited else "")
            )

    def reset(self) -> None:
        """Measure anew."""
        self._waited.clear()
        self._progress.clear()


async def check_topics(missing: Callable[[], Awaitable[Sequence[str]]]) -> None:
    """Check that no topic is missing.

    Args:
        missing: returns the missing topics.

    Raises:
        TopicError: a topic was deleted, and the client would wait for it without end.
    """
    if names := await missing():
        raise missing_topics(names, REMEDY)
