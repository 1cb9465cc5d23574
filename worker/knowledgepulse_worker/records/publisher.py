"""The interface through which lanes publish: outputs, ledger entries and positions in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from knowledgepulse_kafka.commit_outcome import CommitOutcome
from knowledgepulse_kafka.records import OutputRecord, Position


class Publisher(Protocol):
    """Publishes in one transaction: consumers of committed records see all of it or nothing."""

    async def __call__(
        self,
        records: Sequence[OutputRecord],
        positions: Mapping[int, Position],
        alone: Collection[OutputRecord] = (),
    ) -> CommitOutcome:
        """Publish records and commit positions as a member of the group.

        Args:
            records: the records, in order within each topic and partition.
            positions: the next position in each partition of the raw topic.
            alone: the records that are sent in batches of their own.

        Raises:
            DeliveryError: the transaction failed for another reason, and the process must end.
            SecurityError: a right is missing, and the process must end.
        """
        ...
