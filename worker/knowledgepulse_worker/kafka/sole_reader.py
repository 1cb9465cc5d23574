"""Read topics in batches, as a group whose positions a transaction commits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

from aiokafka.errors import IllegalStateError, KafkaError

from knowledgepulse_worker.ending import within
from knowledgepulse_worker.kafka.lease import Lease
from knowledgepulse_worker.kafka.preflight.diagnosis import connect, unreachable
from knowledgepulse_worker.kafka.topic_reader import Record
from knowledgepulse_worker.kafka.wire.group_member import GroupMember
from knowledgepulse_worker.kafka.wire.group_offsets import GroupMetadata
from knowledgepulse_worker.settings import KafkaSettings

_POLL_MS = 500
_REBALANCE_TIMEOUT = 30.0
_CLOSE_LIMIT = 5.0


class SoleReader:
    """The only member of a group, which reads whatever is committed.

    An asynchronous context manager.

    Args:
        kafka: the connection.
        group: the group.
        topics: the topics.
        batch_bytes: the largest compressed batch to decode, inflated.
        new_member: makes the client.

    Attributes:
        group: the group, and the member of it that has read the last batch.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        group: str,
        topics: Sequence[str],
        batch_bytes: int,
        new_member: Callable[..., GroupMember] = GroupMember,
    ) -> None:
        self._kafka = kafka
        self._topics = topics
        self.group = GroupMetadata(group)
        self._consumer = new_member(
            # The lease is for workers that share partitions.
            kafka.model_copy(update={"group": group}),
            batch_bytes,
            Lease(math.inf),
            _REBALANCE_TIMEOUT,
        )

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            NoBrokerError: no broker can be reached.
            SecurityError: the brokers refuse the login or the certificate.
        """
        await connect(self._consumer, self._kafka)
        self._consumer.subscribe(self._topics)
        return self

    async def __aexit__(self, *_: object) -> None:
        await within(_CLOSE_LIMIT, self._consumer.stop)

    async def batch(self) -> list[Record]:
        """Return the next records; none after a while without any.

        Raises:
            NoBrokerError: no broker can be reached any more.
            SecurityError: the brokers refuse the login, the certificate or the group.
        """
        try:
            batches = await self._consumer.getmany(timeout_ms=_POLL_MS)
        except KafkaError as error:
            raise await unreachable(self._kafka, error) from error
        self.group = self._consumer.group
        return [record for records in batches.values() for record in records]

    @property
    def is_current(self) -> bool:
        """Whether the last batch will not be read again from what is committed, as after a rebalance."""
        return self.group == self._consumer.group

    @property
    def not_ready(self) -> list[str]:
        """Reasons why nothing is read; empty if the group has assigned partitions."""
        return [] if self._consumer.assignment() else ["partitions are not assigned yet"]

    async def lag(self) -> int:
        """Return the number of offsets from the positions to the ends that the last fetches saw."""
        lag = 0
        for tp in self._consumer.assignment():
            end = self._consumer.highwater(tp)
            with suppress(IllegalStateError):  # it has been reassigned meanwhile
                lag += end - await self._consumer.position(tp) if end is not None else 0
        return lag
