"""An assignment: the tasks of the owned partitions, which are made together and dropped together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from knowledgepulse_kafka.client_types import Place
from knowledgepulse_kafka.commit_outcome import CommitOutcome, Committed, Rebalanced
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_worker.lane.commit import Prepared, prepare, settle
from knowledgepulse_worker.lane.fair_scheduler import FairScheduler
from knowledgepulse_worker.lane.lane import Lane, Services
from knowledgepulse_worker.lane.ledger import Changelog
from knowledgepulse_worker.lane.partition_task import PartitionTask

FIRST_PARTITIONS, LEAST_PARTITIONS = 250, 50
"""The largest number of partitions of the first transaction, and the least to which it falls.

It then follows from how long transactions take.
"""

LONGEST_TRANSACTION = 5.0
"""Seconds that a transaction may take, half of the time after which the brokers would abort it."""


class Assignment:
    """The tasks of the owned partitions, from an assignment until the partitions are revoked or lost.

    Args:
        changelogs: the committed entries of the owned partitions, as far as they are known.
        membership: the group's member to which the partitions are assigned, under which all is committed.
        services: dependencies shared by all lanes.
        on_failure: called on a fatal error; the process must then end.
        request_commit: called when a lane waits for a commit.
        on_complete: called when a lane has something to commit.
        on_room: called when a task has room for its partition's next records.

    Attributes:
        tasks: the tasks by partition.
        has_left_out: whether the last transaction has left lanes with complete records to the next one.
    """

    def __init__(
        self,
        changelogs: Mapping[int, Changelog],
        membership: GroupMetadata,
        services: Services,
        *,
        on_failure: Callable[[BaseException], None],
        request_commit: Callable[[], None],
        on_complete: Callable[[], None],
        on_room: Callable[[PartitionTask], None],
    ) -> None:
        self.membership = membership
        self.has_left_out = False
        self._most = FIRST_PARTITIONS
        self._services = services
        self._scheduler = FairScheduler(services.quarantine, services.settings.limits.stall)
        self.tasks = {
            number: PartitionTask(
                Place(services.settings.topics.raw, number),
                changelog,
                self._scheduler,
                new_lane=partial(
                    Lane,
                    changelog=changelog,
                    services=services,
                    on_failure=on_failure,
                    request_commit=request_commit,
                    on_complete=on_complete,
                ),
                on_failure=on_failure,
                on_room=on_room,
            )
            for number, changelog in changelogs.items()
        }
        self._scheduler.takers = [*self.tasks.values()]

    @property
    def is_current(self) -> bool:
        """Whether neither a rebalance nor the worker's end has begun."""
        return self._scheduler.is_current

    @property
    def is_over(self) -> bool:
        """Whether records are ignored, since the partitions' next owners read them."""
        return self._scheduler.is_over

    @property
    def lanes(self) -> list[Lane]:
        """The lanes of the partitions from which a record was taken."""
        return self._scheduler.lanes

    @property
    def is_scoring(self) -> bool:
        """Whether a record was taken that is not scored yet."""
        return any(lane.is_scoring for lane in self.lanes)

    @property
    def has_complete(self) -> bool:
        """Whether a record is complete, and not committed."""
        return any(lane.waits_for_commit for lane in self.lanes)

    @property
    def has_backlog(self) -> bool:
        """Whether a fetched record waits to be taken, or a text for the embedder."""
        batcher = self._services.batcher
        return (batcher is not None and batcher.is_backed_up) or any(
            task.untaken for task in self.tasks.values()
        )

    def prepare(self) -> Prepared | None:
        """Return the complete records of all lanes, for one transaction.

        None if there are none, or as long as a broker throttles the producer.
        """
        throttle = self._services.throttles.producer
        if throttle.remaining:
            return None
        prepared = prepare(self.lanes, most=self._most, is_throttled=throttle.recent > 0)
        self.has_left_out = prepared is not None and prepared.leaves_out
        return prepared

    def settle(self, prepared: Prepared, outcome: CommitOutcome) -> Prepared | None:
        """Take note of how a transaction has ended; return what is to be committed in its place, if anything.

        After a rebalance, other members may own the partitions, so the assignment is over.

        Raises:
            DeliveryError: nothing can replace a record that a broker refused, and the process must end.
        """
        services = self._services
        following = settle(prepared, outcome, services.replacements, services.metrics)
        if isinstance(outcome, Committed):
            if (partitions := len(prepared.shares)) >= LEAST_PARTITIONS:
                within = partitions * LONGEST_TRANSACTION / (time.monotonic() - prepared.began)
                self._most = max(LEAST_PARTITIONS, int(within))
            now = time.time()
            for partition, position in prepared.positions.items():
                self.tasks[partition].committed = position.offset
                services.quarantine.committed(partition, position.offset)
                services.metrics.lanes.committed(partition, now)
        elif isinstance(outcome, Rebalanced):
            self.close()  # otherwise, every further transaction would be aborted, too
        return following

    def refresh_gauges(self) -> None:
        """Refresh the gauges before a scrape."""
        lanes, metrics = self.lanes, self._services.metrics
        records = sum(lane.in_flight.records for lane in lanes)
        metrics.lanes.in_flight(records, sum(lane.in_flight.size for lane in lanes))
        for lane in lanes:
            metrics.lanes.cache_size(lane.partition, lane.ledger.state.cache.size)
        profiles = self._services.policy.policy.profiles
        metrics.policy.share_thresholds(lane.ledger.state.scores.cuts(profiles) for lane in lanes)

    def end(self) -> None:
        """Accept no more batches: a rebalance or the end begins, and what is complete is committed before."""
        self._scheduler.is_current = False

    def close(self) -> None:
        """Stop at once; the next owners read what is not committed."""
        self._scheduler.is_over = True
        for task in self.tasks.values():
            task.close()
