"""Consume, process and produce exactly once, as a member of a group (KIP-98, KIP-447)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Self

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from knowledgepulse_kafka.commit_outcome import CommitOutcome, Committed, Refused, Throttled
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.connection_diagnosis import connect
from knowledgepulse_kafka.group_member import CommittedPositions, GroupMember
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.membership_errors import membership_error
from knowledgepulse_kafka.partition_starts import PartitionStarter, PartitionStarts
from knowledgepulse_kafka.producer import TransactionalProducer
from knowledgepulse_kafka.records import OutputRecord, Position
from knowledgepulse_kafka.throttle import Throttles
from knowledgepulse_kafka.topic_reader import Record, held_offsets
from knowledgepulse_kafka.transactional_publisher import BATCH_BYTES, Positions, TransactionalPublisher
from knowledgepulse_kafka.wait import Wait

logger = logging.getLogger(__name__)

# Seconds for leaving the group.
_LEAVE_LIMIT = 2.0


class Rebalances:
    """What a program does at the rebalances of its group.

    By default, it reads on where the group has committed. The next poll raises an error of any method.
    """

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Take note of the partitions that the member owns from now on, none of which is read yet."""

    async def recover(self, positions: CommittedPositions, begin: PartitionStarter) -> None:
        """Recover what is kept of some of these partitions, and begin to read each.

        Only these partitions wait. At the next rebalance, this is cancelled.

        Args:
            positions: the group's positions in the partitions, which no open transaction may replace.
            begin: begins to read a partition.
        """
        await asyncio.gather(
            *(
                begin(place, None if position is None else position.offset)
                for place, position in positions.items()
            )
        )

    async def revoked(self) -> None:
        """Finish before all partitions are assigned anew; until this returns, the session can commit."""


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
        rebalances: what to do at rebalances.
        throttles: note the times for which brokers throttle the clients; by default, these log them.
        granted: the name that the right to the transactional id is granted on: a prefix with a ``*``, or the
            transactional id.
        new_member: makes the consumer.
        new_producer: makes the producer.

    Attributes:
        member: the client that reads, which can pause partitions and seek in those that are read.
        publisher: the client that publishes.
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
        rebalances: Rebalances | None = None,
        throttles: Throttles | None = None,
        granted: str | None = None,
        new_member: Callable[..., GroupMember] = GroupMember,
        new_producer: Callable[..., TransactionalProducer] = TransactionalProducer,
    ) -> None:
        self._config = config
        self._topics = topics
        producer, consumer = (throttles.producer, throttles.consumer) if throttles else (None, None)
        self.publisher = TransactionalPublisher(
            config, transactional_id, batch_bytes, new_producer, granted, producer
        )
        self.member = new_member(config, decoded_bytes, rebalance_timeout, consumer)
        rebalances = rebalances or Rebalances()
        self._starts = PartitionStarts(self.member, rebalances.recover)
        self._listener = _Listener(self._starts, rebalances)
        self._group = GroupMetadata(config.group)
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            NoBrokerError: no broker can be reached.
            SecurityError: the brokers refuse the login, the certificate or the transactional id.
            DeliveryError: no transaction can begin.
            BrokerError: the group's id is that of a group of another type.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.publisher)
            await connect(self.member, self._config)
            stack.push_async_callback(self._leave)
            self.member.subscribe(topics=self._topics, listener=self._listener)
            self._resources = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._resources.aclose()

    async def poll(self, seconds: float = 0.5) -> list[Record]:
        """Return the next records; an empty list if none arrive for the given seconds.

        After a rebalance, each partition is read as soon as it is recovered (:meth:`Rebalances.recover`).

        Raises:
            ClientError: see :meth:`check`.
        """
        self.check()
        try:
            batches = await self.member.getmany(timeout_ms=int(seconds * 1000))
        except KafkaError as error:
            raise membership_error(error, self._config, self.member.waits) from error
        self._group = self.member.group
        reading = self._starts.reading
        return [record for place, records in batches.items() if place in reading for record in records]

    def check(self) -> None:
        """Raise the error that ended the session, as every poll does.

        Raises:
            SecurityError: a right is missing.
            MembershipError: the group does not accept the client, or the client failed for good.
            Exception: any that a method of the rebalances raised.
        """
        self._listener.check()
        self._starts.check()
        try:
            self.member.check_membership()
        except Exception as error:
            raise membership_error(error, self._config, self.member.waits) from error

    async def commit(
        self,
        records: Sequence[OutputRecord],
        positions: Positions,
        alone: Collection[OutputRecord] = (),
        group: GroupMetadata | None = None,
    ) -> CommitOutcome:
        """Publish records and commit positions in one transaction: all of them or none.

        Args:
            records: the records, in order within each topic and partition.
            positions: the next position in each partition, of records that the last poll returned.
            alone: the records that are sent in batches of their own.
            group: the membership under which the records were read; by default, that of the last poll.

        Raises:
            DeliveryError: the transaction failed for a reason that ends the session; its successor reads from
                the brokers whether it was committed.
            SecurityError: a right is missing.
        """
        return await self.publisher.commit(records, positions, group or self._group, alone)

    @property
    def is_current(self) -> bool:
        """Whether the membership that read the last records still holds."""
        return bool(self._group == self.member.group)

    @property
    def not_ready(self) -> list[str]:
        """The reasons why partitions are not read; empty if all of those that are assigned are."""
        return self._starts.not_ready

    @property
    def waits(self) -> dict[Wait, float]:
        """What partitions that are not read wait for, and for how many seconds they have been waiting."""
        return self._starts.waits

    async def bounds(self, place: TopicPartition) -> range:
        """Return the offsets that a partition holds now."""
        return await held_offsets(self.member, place)

    async def at_end(self, places: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions with nothing left to read; an empty set if the brokers do not answer."""
        try:
            ends = await self.member.end_offsets(list(places))
            return {place for place in places if await self.member.position(place) >= ends[place]}
        except KafkaError:
            return set()

    async def lag(self) -> int:
        """Return the number of offsets between the positions and the ends reported by the last fetches."""
        lag = 0
        for tp in self.member.assignment():
            end = self.member.highwater(tp)
            with suppress(IllegalStateError):  # the partition has been reassigned meanwhile
                lag += end - await self.member.position(tp) if end is not None else 0
        return lag

    async def _leave(self) -> None:
        await self._starts.end()
        with suppress(TimeoutError):  # closing may wait forever while a broker is down
            async with asyncio.timeout(_LEAVE_LIMIT):
                await self.member.stop()


def positions_after(records: Sequence[Record]) -> dict[tuple[str, int], Position]:
    """Return the positions after records that are in offset order in each partition."""
    return {(record.topic, record.partition): Position(record.offset + 1) for record in records}


async def commit_repeatedly(
    publisher: Session | TransactionalPublisher, records: Sequence[OutputRecord], positions: Positions
) -> bool:
    """Commit, again and again while a quota forbids it; return False if a session's group has rebalanced.

    Raises:
        RefusedError: brokers refused records.
        ClientError: see :meth:`Session.commit`.
    """
    while isinstance(outcome := await publisher.commit(records, positions), Throttled):
        logger.info("%s; the transaction is repeated", outcome.reason)
    if isinstance(outcome, Refused):
        raise outcome.error
    return isinstance(outcome, Committed)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Passes on rebalances, and keeps the error of one, which the client would only log."""

    def __init__(self, starts: PartitionStarts, rebalances: Rebalances) -> None:
        self._starts = starts
        self._rebalances = rebalances
        self._error: Exception | None = None

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        with self._keeping_error():
            await self._starts.end()
            await self._rebalances.revoked()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        with self._keeping_error():
            self._rebalances.assigned(assigned)
            self._starts.begin(assigned)

    def check(self) -> None:
        """Raise the error of a rebalance."""
        if self._error is not None:
            raise self._error

    @contextmanager
    def _keeping_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the next poll raises it
            self._error = error
