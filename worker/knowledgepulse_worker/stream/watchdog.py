"""Detect a stalled stream while Kafka's client and Faust still seem to run."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from knowledgepulse_worker.errors import StalledError

INTERVAL = 1.0
"""Seconds between two checks."""


class Watchdog:
    """Measures how long partitions have been waiting without progress.

    Args:
        limit: seconds after which a partition counts as stalled.
        problem: describes the stall in the error.
    """

    def __init__(self, limit: float, problem: str) -> None:
        self._limit = limit
        self._problem = problem
        self._progress: dict[int, Hashable] = {}
        self._waited: dict[int, float] = {}

    def check(self, waiting: Mapping[int, Hashable]) -> None:
        """Check the partitions with waiting records; to be called every :data:`INTERVAL`.

        Time is measured in calls and not by the clock, since a suspended process has not stalled.

        Args:
            waiting: the progress of each partition with waiting records.

        Raises:
            StalledError: a partition has made no progress for longer than the limit.
        """
        self._waited = {
            partition: self._waited[partition] + INTERVAL
            if progress == self._progress.get(partition)
            else 0.0
            for partition, progress in waiting.items()
        }
        self._progress = dict(waiting)
        stalled = [partition for partition, seconds in self._waited.items() if seconds > self._limit]
        if stalled:
            numbers = ", ".join(map(str, stalled))
            raise StalledError(f"partition {numbers}: {self._problem} for {self._limit:g} s (limits.stall)")
