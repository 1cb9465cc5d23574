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
        leader_epoch: the epoch of the leader that wrote the record before this offset; -1 if unknown.
    """

    offset: int
    topic_id: bytes = b""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of a batch.

    Attributes:
        records: the records of the batch. If there are several, any of them may be at fault.
        cause: the broker's error: a TooLargeError, a TimestampError or an UnacceptableError.
    """

    records: Sequence[OutputRecord]
    cause: DeliveryError


class RefusedError(DeliveryError):
    """Brokers refused batches, so the transaction was aborted.

    Attributes:
        refusals: the refusals in all partitions. A broker judges no batch behind one that it refused.
    """

    def __init__(self, *refusals: Refusal) -> None:
        super().__init__("; ".join(dict.fromkeys(str(one.cause) for one in refusals)))
        self.refusals = refusals


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
            RefusedError: brokers refused batches; nothing was published.
            ThrottledError: the brokers' quota would have kept the transaction open; nothing was published.
            LostPartitionsError: the group has rebalanced; nothing was published.
            DeliveryError: the transaction failed for another reason, and the process must end.
            SecurityError: a right is missing, and the process must end.
        """
        ...


class ThrottledError(DeliveryError):
    """A quota of the brokers would have kept the transaction open for too long."""


class LostPartitionsError(DeliveryError):
    """The group has rebalanced, so other members may own the partitions."""


def retrieve_exception(delivery: asyncio.Future[Any]) -> None:
    """Mark an exception as retrieved, since failures after the first are never awaited."""
    if not delivery.cancelled():
        delivery.exception()
