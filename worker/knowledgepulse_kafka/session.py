"""Consume, process and produce exactly once, as a member of a group (KIP-98, KIP-447)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Self, TypeAlias

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from knowledgepulse_kafka.commit_outcome import CommitOutcome
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.connection_diagnosis import connect, unreachable
from knowledgepulse_kafka.group_member import GroupMember
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.partition_starts import PartitionStarts, StartOf, start_at_committed
from knowledgepulse_kafka.producer import TransactionalProducer
from knowledgepulse_kafka.records import OutputRecord, Position
from knowledgepulse_kafka.topic_reader import Record, held_offsets
from knowledgepulse_kafka.transactional_publisher import BATCH_BYTES, TransactionalPublisher
from knowledgepulse_kafka.wait import Wait

_CLOSE_LIMIT = 5.0

OnRevoked: TypeAlias = Callable[[], Awaitable[None]]

Positions: TypeAlias = Mapping[tuple[str, int], Position]
"""The positions to commit, by topic and partition."""


class Session:
    """A member of a group that commits what it makes of records together with its positions.

    An asynchronous context manager. On entry, an earlier session with the same transactional id is fenced
    off, and its open transaction is completed or aborted.

    Args:
        config: the connection and the group.
        topics: the names of the topics to read.
        transactional_id: the transactional id, which no other running session has.
        decoded_bytes: the largest batch to decode, inflated.
        batch_bytes: the size limit of a batch to publish with more than one record.
        rebalance_timeout: seconds that a rebalance allows the group's members to finish.
        on_revoked: awaited before partitions are reassigned; until it returns, the session can commit.
        start_of: returns where to start an assigned partition; by default, at the committed offset. Only the
            partition itself waits for it.
        granted: the name that the right to the transactional id is granted on: a prefix with a ``*``, or the
            transactional id.
        new_member: makes the consumer.
        new_producer: makes the producer.
    """

    def __init__(
        self,
        config: Config,
        topics: Sequence[str],
        transactional_id: str,
        *,
        decoded_bytes: int,
        batch_bytes: int = BATCH_BYTES,
        rebalance_timeout: float = 30.0,
        on_revoked: OnRevoked | None = None,
        start_of: StartOf = start_at_committed,
        granted: str | None = None,
        new_member: Callable[..., GroupMember] = GroupMember,
        new_producer: Callable[..., TransactionalProducer] = TransactionalProducer,
    ) -> None:
        self._config = config
        self._topics = topics
        self._on_revoked = on_revoked
        self._publisher = TransactionalPublisher(config, transactional_id, batch_bytes, new_producer, granted)
        self._consumer = new_member(config, decoded_bytes, rebalance_timeout)
        self._starts = PartitionStarts(self._consumer, start_of)
        self._member = GroupMetadata(config.group)
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            NoBrokerError: no broker can be reached.
            SecurityError: the brokers refuse the login, the certificate or the transactional id.
            DeliveryError: no transaction can begin.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._publisher)
            await connect(self._consumer, self._config)
            stack.push_async_callback(self._leave)
            self._consumer.subscribe(self._topics, listener=_Listener(self._starts, self._on_revoked))
            self._resources = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._resources.aclose()

    async def poll(self, seconds: float = 0.5) -> list[Record]:
        """Return the next records; an empty list if none arrive for the given seconds.

        After a rebalance, each partition is read again from its committed position, once that is known.

        Raises:
            NoBrokerError: no broker can be reached any more.
            SecurityError: the brokers refuse the login, the certificate or the group.
            Exception: any that ``start_of`` raised.
        """
        try:
            self._starts.check()
            batches = await self._consumer.getmany(timeout_ms=int(seconds * 1000))
        except KafkaError as error:
            raise await unreachable(self._config, error) from error
        self._member = self._consumer.group
        reading = self._starts.reading
        return [record for place, records in batches.items() if place in reading for record in records]

    async def commit(
        self, records: Sequence[OutputRecord], positions: Positions, alone: Collection[OutputRecord] = ()
    ) -> CommitOutcome:
        """Publish records and commit positions in one transaction: all of them or none.

        Args:
            records: the records, in order within each topic and partition.
            positions: the next position in each partition, of records that the last poll returned.
            alone: the records that are sent in batches of their own.

        Raises:
            DeliveryError: the transaction failed for a reason that ends the session; its successor reads from
                the brokers whether it was committed.
            SecurityError: a right is missing.
        """
        return await self._publisher.commit(records, positions, self._member, alone)

    @property
    def is_current(self) -> bool:
        """Whether the membership that read the last records still holds."""
        return bool(self._member == self._consumer.group)

    @property
    def not_ready(self) -> list[str]:
        """The reasons why partitions are not read; empty if all of those that are assigned are."""
        return self._starts.not_ready

    @property
    def waits(self) -> dict[Wait, float]:
        """What partitions that are not read wait for, and for how many seconds they have been waiting."""
        return self._starts.waits

    async def committed(self, place: TopicPartition) -> int | None:
        """Return the group's committed offset in a partition; None if there is none.

        An offset that an open transaction may still replace is awaited.
        """
        position = (await self._consumer.committed([place])).get(place)
        return None if position is None else position.offset

    async def bounds(self, place: TopicPartition) -> range:
        """Return the offsets that a partition holds now."""
        return await held_offsets(self._consumer, place)

    async def at_end(self, places: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions with nothing left to read; an empty set if the brokers do not answer."""
        try:
            ends = await self._consumer.end_offsets(list(places))
            return {place for place in places if await self._consumer.position(place) >= ends[place]}
        except KafkaError:
            return set()

    async def lag(self) -> int:
        """Return the number of offsets between the positions and the ends reported by the last fetches."""
        lag = 0
        for tp in self._consumer.assignment():
            end = self._consumer.highwater(tp)
            with suppress(IllegalStateError):  # the partition has been reassigned meanwhile
                lag += end - await self._consumer.position(tp) if end is not None else 0
        return lag

    async def _leave(self) -> None:
        await self._starts.end()
        with suppress(TimeoutError):  # closing may wait forever while a broker is down
            async with asyncio.timeout(_CLOSE_LIMIT):
                await self._consumer.stop()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    def __init__(self, starts: PartitionStarts, on_revoked: OnRevoked | None) -> None:
        self._starts = starts
        self._on_revoked = on_revoked

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._starts.end()
        if self._on_revoked is not None:
            await self._on_revoked()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._starts.begin(assigned)
