"""Commit what the lanes complete, in one transaction after another, as a member of the group."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from knowledgepulse_kafka.commit_outcome import CommitOutcome
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.records import OutputRecord, Position
from knowledgepulse_kafka.session import Session
from knowledgepulse_worker.errors import EXPECTED
from knowledgepulse_worker.lane.assignment import Assignment
from knowledgepulse_worker.observe.metrics import Metrics

logger = logging.getLogger(__name__)


class Committer:
    """Commits an assignment's complete records with their positions; one call at a time.

    Args:
        session: the membership of the group, which the coordinator checks.
        topic: the raw topic.
        metrics: notes the partitions with a commit.

    Attributes:
        transaction_began: when the transaction in progress began (``time.monotonic``); None without one.
    """

    def __init__(self, session: Session, topic: str, metrics: Metrics) -> None:
        self._session = session
        self._topic = topic
        self._metrics = metrics
        self._has_failed = False
        self.transaction_began: float | None = None

    async def commit(self, assignment: Assignment) -> bool:
        """Commit what an assignment's lanes have completed; return whether anything was.

        If the group has rebalanced without this worker, nothing is, and the assignment is over.

        Raises:
            WorkerError: the transaction failed, and the process must end; nothing is committed any more.
        """
        if not self._session.member.is_member or self._has_failed:
            return False
        self.transaction_began = time.monotonic()
        try:
            positions = await assignment.commit(partial(self._publish, self._session.member.group))
        except EXPECTED:
            self._has_failed = True  # the producer begins no other transaction
            raise
        finally:
            self.transaction_began = None
        if positions is None:
            logger.warning(
                "the transaction was aborted, because the group has rebalanced without this worker"
            )
            assignment.close()  # otherwise, every further transaction would be aborted, too
            return False
        now = time.time()
        for number in positions:
            self._metrics.committed(number, now)
        return bool(positions)

    async def _publish(
        self,
        group: GroupMetadata,
        records: Sequence[OutputRecord],
        positions: Mapping[int, Position],
        alone: Collection[OutputRecord] = (),
    ) -> CommitOutcome:
        """Commit in the raw topic; with its first argument bound, this is a ``Publisher``.

        A commit may take several transactions, and outlive its assignment: all are under one membership.
        """
        places = {(self._topic, partition): position for partition, position in positions.items()}
        return await self._session.commit(records, places, alone, group)
