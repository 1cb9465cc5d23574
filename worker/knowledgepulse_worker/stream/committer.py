"""Commit what the lanes complete, in one transaction after another, as a member of the group."""

from __future__ import annotations

import logging
import time

from knowledgepulse_kafka.commit_outcome import CommitOutcome, Committed, Rebalanced
from knowledgepulse_kafka.session import Session
from knowledgepulse_worker.errors import EXPECTED
from knowledgepulse_worker.lane.assignment import Assignment

logger = logging.getLogger(__name__)


class Committer:
    """Commits an assignment's complete records with their positions; one call at a time.

    Args:
        session: the membership of the group, which the coordinator checks.
        topic: the raw topic.

    Attributes:
        transaction_began: when the transaction in progress began (``time.monotonic``); None without one.
    """

    def __init__(self, session: Session, topic: str) -> None:
        self._session = session
        self._topic = topic
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
        outcome: CommitOutcome | None = None
        try:
            prepared = assignment.prepare()
            # It may take several transactions, and outlive the assignment: all are under its membership.
            while prepared is not None:
                positions = {(self._topic, number): at for number, at in prepared.positions.items()}
                outcome = await self._session.commit(
                    prepared.records, positions, prepared.alone, assignment.membership
                )
                prepared = assignment.settle(prepared, outcome)
        except EXPECTED:
            self._has_failed = True  # the producer begins no other transaction
            raise
        finally:
            self.transaction_began = None
        if isinstance(outcome, Rebalanced):
            logger.warning(
                "the transaction was aborted, because the group has rebalanced without this worker"
            )
        return isinstance(outcome, Committed)
