"""An assignment: the tasks of the owned partitions, which are made together and dropped together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from knowledgepulse_kafka.client_types import Place
from knowledgepulse_kafka.commit_outcome import CommitOutcome, Committed, Rebalanced
from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_worker.lane.commit import Prepared, prepare, settle
from knowledgepulse_worker.lane.lane import Lane, Services
from knowledgepulse_worker.lane.ledger import Changelog
from knowledgepulse_worker.lane.partition_task import PartitionTask

LARGE_BYTES = 65_536
"""Size in bytes above which a record blocks the event loop for milliseconds."""

YIELD_FACTOR = 19.0
"""The factor by which a lane's pause after a large record exceeds the record's processing time."""

YIELD_SHARE = 10.0
"""The divisor of ``limits.stall`` that bounds such a pause, so that the lane never counts as stalled."""


class Assignment:
    """The tasks of the owned partitions, from an assignment until the partitions are revoked or lost.

    Args:
        changelogs: the committed entries of the owned partitions, as far as they are known.
        services: dependencies shared by all lanes.
        on_failure: called on a fatal error; the process must then end.
        request_commit: called when a lane waits for a commit.
        on_room: called when a task has room for its partition's next records.

    Attributes:
        tasks: the tasks by partition.
        is_current: whether neither a rebalance nor the worker's end has begun.
        is_over: whether records are ignored, since the partitions' next owners read them.
    """

    def __init__(
        self,
        changelogs: Mapping[int, Changelog],
        services: Services,
        *,
        on_failure: Callable[[BaseException], None],
        request_commit: Callable[[], None],
        on_room: Callable[[PartitionTask], None],
    ) -> None:
        raw = services.settings.topics.raw
        self.tasks = {
            number: PartitionTask(Place(raw, number), changelog, self)
            for number, changelog in changelogs.items()
        }
        self.is_current = True
        self.is_over = False
        self.on_failure = on_failure
        self.on_room = on_room
        self._services = services
        self._request_commit = request_commit
        self._alone = asyncio.Lock()  # held while a record is processed alone

    @property
    def lanes(self) -> list[Lane]:
        """The lanes of the partitions from which a record was taken."""
        return [task.lane for task in self.tasks.values() if task.lane is not None]

    @property
    def is_scoring(self) -> bool:
        """Whether a record was taken that is not scored yet."""
        return any(lane.is_scoring for lane in self.lanes)

    def prepare(self) -> Prepared | None:
        """Return the complete records of all lanes, for one transaction.

        None if there are none, or as long as a broker throttles the producer.
        """
        throttle = self._services.throttles.producer
        if throttle.remaining:
            return None
        return prepare(self.lanes, is_throttled=throttle.recent > 0)

    def settle(self, prepared: Prepared, outcome: CommitOutcome) -> Prepared | None:
        """Take note of how a transaction has ended; return what is to be committed in its place, if anything.

        After a rebalance, other members may own the partitions, so the assignment is over.

        Raises:
            DeliveryError: nothing can replace a record that a broker refused, and the process must end.
        """
        services = self._services
        following = settle(prepared, outcome, services.replacements, services.metrics)
        if isinstance(outcome, Committed):
            now = time.time()
            for partition, position in prepared.positions.items():
                self.tasks[partition].committed = position.offset
                services.suspects.committed(partition, position.offset)
                services.metrics.lanes.committed(partition, now)
        elif isinstance(outcome, Rebalanced):
            self.close()  # otherwise, every further transaction would be aborted, too
        return following

    def refresh_gauges(self) -> None:
        """Refresh the gauges before a scrape."""
        lanes, metrics = self.lanes, self._services.metrics
        records = sum(lane.admission.records for lane in lanes)
        metrics.lanes.in_flight(records, sum(lane.admission.size for lane in lanes))
        for lane in lanes:
            metrics.lanes.cache_size(lane.partition, lane.ledger.state.cache.size)
        profiles = self._services.policy.policy.profiles
        metrics.policy.share_thresholds(lane.ledger.state.scores.cuts(profiles) for lane in lanes)

    def end(self) -> None:
        """Accept no more batches: a rebalance or the end begins, and what is complete is committed before."""
        self.is_current = False

    def close(self) -> None:
        """Stop at once; the next owners read what is not committed."""
        self.is_over = True
        for task in self.tasks.values():
            task.close()

    # --- called by the tasks

    def new_lane(self, task: PartitionTask, first: RawRecord) -> Lane:
        """Return a lane that is to be opened and whose first record is this one."""
        return Lane(first, task.changelog, self._services, self.on_failure, self._request_commit)

    @asynccontextmanager
    async def turn(self, task: PartitionTask, record: RawRecord) -> AsyncIterator[bool]:
        """Wait until a task may take a record; yield whether it is to be processed while no other is."""
        suspects = self._services.suspects
        if not suspects.any:
            yield False
        elif not suspects.is_alone(record.location):
            async with self._alone:
                await task.taking.acquire()
            try:
                yield False
            finally:
                task.taking.release()
        else:
            async with self._alone:
                for other in self.tasks.values():
                    async with other.taking:
                        pass  # it takes no further record meanwhile
                for lane in self.lanes:
                    await lane.wait_scored()
                yield True

    def lets_take_at_once(self, record: RawRecord) -> bool:
        """Return whether a record may be taken without its turn, and no other has to work after it."""
        return not (self.is_over or self._services.suspects.any or record.size > LARGE_BYTES)

    async def let_others_work(self, record: RawRecord, blocked: float) -> None:
        """Pause after a large record, given the seconds for which taking it blocked the event loop."""
        if record.size > LARGE_BYTES and len(self.lanes) > 1:
            longest = self._services.settings.limits.stall / YIELD_SHARE
            await asyncio.sleep(min(YIELD_FACTOR * blocked, longest))
