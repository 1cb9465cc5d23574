"""Notices that the stream has stopped where Kafka's client and Faust have not."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from worker.errors import StalledError

INTERVAL = 1.0
"""Seconds between two checks."""


class Watchdog:
    """Counts how long partitions have been waiting at the same place.

    Args:
        limit: seconds that one may.
        what: is wrong when it does.
    """

    def __init__(self, limit: float, what: str) -> None:
        self._limit = limit
        self._what = what
        self._places: dict[int, Hashable] = {}
        self._waited: dict[int, float] = {}

    def check(self, waiting: Mapping[int, Hashable]) -> None:
        """Look at the partitions where records wait; called every :data:`INTERVAL`.

        Checks are counted, not the clock: a process that was suspended has not stalled.

        Args:
            waiting: how far each of them has come; a partition that is not there does not wait.

        Raises:
            StalledError: one has come no further for longer than the limit.
        """
        self._waited = {
            partition: self._waited[partition] + INTERVAL if place == self._places.get(partition) else 0.0
            for partition, place in waiting.items()
        }
        self._places = dict(waiting)
        stalled = [partition for partition, seconds in self._waited.items() if seconds > self._limit]
        if stalled:
            numbers = ", ".join(map(str, stalled))
            raise StalledError(f"partition {numbers}: {self._what} for {self._limit:g} s (limits.stall)")
