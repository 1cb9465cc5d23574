"""The records of a lane in flight: taken, and not committed."""

from __future__ import annotations

from collections.abc import Collection

from knowledgepulse_worker.lane.stages import Completed
from knowledgepulse_worker.settings import LimitSettings


class InFlight:
    """The number and the size of a lane's records in flight, which the limits bound.

    Args:
        limits: the limits.

    Attributes:
        records: their number.
        size: their bytes.
    """

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self.records = 0
        self.size = 0

    def has_room(self, size: int) -> bool:
        """Return whether there is room for a record of this size; if there is no other, for any."""
        return self.records == 0 or (
            self.records < self._limits.in_flight_records and self.size + size <= self._limits.in_flight_bytes
        )

    def is_half_full(self, scored: int) -> bool:
        """Return whether a commit of the scored records now makes room before the lane has to wait for it."""
        limits = self._limits
        return 2 * scored >= self.records and (
            2 * self.records >= limits.in_flight_records or 2 * self.size >= limits.in_flight_bytes
        )

    def add(self, size: int) -> None:
        """Add a record of this size, which is taken."""
        self.records += 1
        self.size += size

    def release(self, committed: Collection[Completed]) -> None:
        """Make room: the records are committed."""
        self.records -= len(committed)
        self.size -= sum(completed.scored.record.size for completed in committed)

    def clear(self) -> None:
        """Forget all records: the partition's next owner reads those that are not committed."""
        self.records = self.size = 0
