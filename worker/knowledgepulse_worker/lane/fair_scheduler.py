"""Which of an assignment's tasks takes records next.

As a rule, each takes its records when it has room. A record that may kill the process is taken alone, and
after one that blocks the event loop for long, the others come first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_worker.lane.lane import Lane
from knowledgepulse_worker.process.quarantine import Quarantine

LARGE_BYTES = 65_536
"""Size in bytes above which a record blocks the event loop for milliseconds."""

YIELD_FACTOR = 19.0
"""The factor by which a lane's pause after a large record exceeds the record's processing time."""

YIELD_SHARE = 10.0
"""The divisor of ``limits.stall`` that bounds such a pause, so that the lane never counts as stalled."""


def is_small(record: RawRecord) -> bool:
    """Return whether others need not work after a record."""
    return record.size <= LARGE_BYTES


class Taker(Protocol):
    """Who takes records.

    Attributes:
        taking: held while a record is taken, as long as there are suspects.
        lane: where the records go; None before the first one.
    """

    taking: asyncio.Lock
    lane: Lane | None


class FairScheduler:
    """Decides which of an assignment's tasks takes records next.

    Args:
        quarantine: the records that may kill the process.
        stall: seconds without progress after which a partition counts as stalled.

    Attributes:
        takers: the tasks.
        is_current: whether neither a rebalance nor the worker's end has begun.
        is_over: whether records are ignored, since the partitions' next owners read them.
    """

    def __init__(self, quarantine: Quarantine, stall: float) -> None:
        self.takers: Sequence[Taker] = ()
        self.is_current = True
        self.is_over = False
        self._quarantine = quarantine
        self._longest_pause = stall / YIELD_SHARE
        self._alone = asyncio.Lock()  # held while a record is processed alone

    @property
    def lanes(self) -> list[Lane]:
        """The lanes of the partitions from which a record was taken."""
        return [taker.lane for taker in self.takers if taker.lane is not None]

    @asynccontextmanager
    async def turn(self, taker: Taker, record: RawRecord) -> AsyncIterator[bool]:
        """Wait until a task may take a record; yield whether it is to be processed while no other is."""
        quarantine = self._quarantine
        if not quarantine.any:
            yield False
        elif not quarantine.is_alone(record.location):
            async with self._alone:
                await taker.taking.acquire()
            try:
                yield False
            finally:
                taker.taking.release()
        else:
            async with self._alone:
                for other in self.takers:
                    async with other.taking:
                        pass  # it takes no further record meanwhile
                for lane in self.lanes:
                    await lane.wait_scored()
                yield True

    @property
    def let_take_at_once(self) -> bool:
        """Whether records may be taken without their turn, if they are small."""
        return not (self.is_over or self._quarantine.any)

    async def let_others_work(self, record: RawRecord, blocked: float) -> None:
        """Pause after a large record, given the seconds for which taking it blocked the event loop."""
        if not is_small(record) and len(self.lanes) > 1:
            await asyncio.sleep(min(YIELD_FACTOR * blocked, self._longest_pause))
