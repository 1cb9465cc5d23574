"""The records of a lane that are scored, and not committed."""

from __future__ import annotations

import asyncio
from collections import deque

from knowledgepulse_worker.lane.stages import Completed


class Uncommitted:
    """The records to commit next, in order: completed, or in a task that makes their redacted copy."""

    def __init__(self) -> None:
        self._records: deque[Completed | asyncio.Task[Completed]] = deque()

    def __len__(self) -> int:
        return len(self._records)

    def append(self, record: Completed | asyncio.Task[Completed]) -> None:
        """Add a record behind the others."""
        self._records.append(record)

    @property
    def begins_complete(self) -> bool:
        """Whether the first record is complete."""
        return bool(self._records) and _completed(self._records[0]) is not None

    def complete(self) -> list[Completed]:
        """Return the first records, up to one whose redacted copy is missing."""
        complete = []
        for record in self._records:
            if (completed := _completed(record)) is None:
                break
            complete.append(completed)
        return complete

    def replace(self, number: int, completed: Completed) -> None:
        """Replace a record, of which a broker refuses a part; do nothing once they are dropped."""
        if self._records:
            self._records[number] = completed

    def committed(self, count: int) -> None:
        """Forget the first records."""
        for _ in range(count):
            self._records.popleft()

    def drop(self) -> None:
        """Forget all records, and make no more copies."""
        for record in self._records:
            if not isinstance(record, Completed):
                record.cancel()
        self._records.clear()


def _completed(record: Completed | asyncio.Task[Completed]) -> Completed | None:
    """Return a record that is complete; None as long as its redacted copy is missing."""
    if isinstance(record, Completed):
        return record
    if not record.done() or record.cancelled() or record.exception() is not None:
        return None
    return record.result()
