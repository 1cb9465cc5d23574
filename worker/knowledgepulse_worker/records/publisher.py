"""The interface through which lanes publish: outputs, ledger entries and positions in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from knowledgepulse_worker.errors import DeliveryError
from knowledgepulse_worker.records.record import OutputRecord


@dataclass(frozen=True, slots=True)
class Position:
    """The position in a partition of the raw topic.

    Attributes:
        offset: the offset of the next record.
        topic_id: the id of the topic (KIP-516); empty if unknown.
    """

    offset: int
    topic_id: bytes = b""


class RefusedError(DeliveryError):
    """The broker refused a batch, so the transaction was aborted.

    Attributes:
        records: the records of the batch. If there are several, any of them may be at fault.
        cause: the broker's error; a TooLargeError or a TimestampError.
    """

    def __init__(self, records: Sequence[OutputRecord], cause: DeliveryError) -> None:
        super().__init__(str(cause))
        self.records = records
        self.cause = cause


class Publish(Protocol):
    """Publishes in one transaction: consumers of committed records see all of it or nothing."""

    async def __call__(
        self,
        records: Sequence[OutputRecord],
        positions: Mapping[int, Position],
        alone: Collection[OutputRecord] = (),
    ) -> list[int]:
        """Publish records and commit positions as a member of the group.

        Args:
            records: the records, in order within each topic and partition.
            positions: the next position in each partition of the raw topic.
            alone: the records that are sent in batches of their own.

        Returns:
            the offset of each record.

        Raises:
            RefusedError: the broker refused a batch; nothing was published.
            LostPartitionsError: the group has rebalanced; nothing was published.
            DeliveryError: the transaction failed for another reason, and the process must end.
        """
        ...


class LostPartitionsError(DeliveryError):
    """The group has rebalanced, so other members may own the partitions."""


def retrieve_exception(delivery: asyncio.Future[Any]) -> None:
    """Mark an exception as retrieved, since failures after the first are never awaited."""
    if not delivery.cancelled():
        delivery.exception()
