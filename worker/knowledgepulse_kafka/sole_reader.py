"""Read topics in batches, as the only member of a group whose offsets are committed by transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Self

from aiokafka.errors import IllegalStateError, KafkaError

from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.diagnosis import connect, unreachable
from knowledgepulse_kafka.group_member import GroupMember
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.topic_reader import Record

_POLL_MS = 500
_REBALANCE_TIMEOUT = 30.0
_CLOSE_LIMIT = 5.0


class SoleReader:
    """The only member of a group, which reads committed records from all of its topics.

    An asynchronous context manager.

    Args:
        config: the connection.
        group: the group's name.
        topics: the topics' names.
        batch_bytes: the largest batch to decode, inflated.
        new_member: makes the client.

    Attributes:
        group: the group and the membership under which the last batch was read.
    """

    def __init__(
        self,
        config: Config,
        group: str,
        topics: Sequence[str],
        batch_bytes: int,
        new_member: Callable[..., GroupMember] = GroupMember,
    ) -> None:
        self._config = config
        self._topics = topics
        self.group = GroupMetadata(group)
        self._consumer = new_member(replace(config, group=group), batch_bytes, _REBALANCE_TIMEOUT)

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            NoBrokerError: no broker can be reached.
            SecurityError: the brokers refuse the login or the certificate.
        """
        await connect(self._consumer, self._config)
        self._consumer.subscribe(self._topics)
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(TimeoutError):  # closing may wait forever while a broker is down
            async with asyncio.timeout(_CLOSE_LIMIT):
                await self._consumer.stop()

    async def batch(self) -> list[Record]:
        """Return the next records; an empty list if none arrive for a while.

        Raises:
            NoBrokerError: no broker can be reached any more.
            SecurityError: the brokers refuse the login, the certificate or the group.
        """
        try:
            batches = await self._consumer.getmany(timeout_ms=_POLL_MS)
        except KafkaError as error:
            raise await unreachable(self._config, error) from error
        self.group = self._consumer.group
        return [record for records in batches.values() for record in records]

    @property
    def is_current(self) -> bool:
        """Whether the membership that read the last batch still holds.

        After a rebalance, reading starts again at the committed offsets and repeats the batch.
        """
        return bool(self.group == self._consumer.group)

    @property
    def not_ready(self) -> list[str]:
        """The reasons why nothing is read; empty once partitions are assigned."""
        return [] if self._consumer.assignment() else ["partitions are not assigned yet"]

    async def lag(self) -> int:
        """Return the number of offsets between the positions and the ends reported by the last fetches."""
        lag = 0
        for tp in self._consumer.assignment():
            end = self._consumer.highwater(tp)
            with suppress(IllegalStateError):  # the partition has been reassigned meanwhile
                lag += end - await self._consumer.position(tp) if end is not None else 0
        return lag
