"""Extensions of aiokafka's producer: batches and group offsets in transactions, and ways to stop it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    InvalidProducerIdMapping,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerFenced,
    RecordListTooLargeError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
)
from aiokafka.protocol.admin import ApiVersionRequest
from aiokafka.structs import OffsetAndMetadata, RecordMetadata

from knowledgepulse_kafka.client_factory import adapted
from knowledgepulse_kafka.errors import (
    DeliveryError,
    Refusal,
    RefusedError,
    TimestampError,
    TooLargeError,
    TopicError,
    UnacceptableError,
    retrieve_exception,
)
from knowledgepulse_kafka.group_offsets import (
    GroupMetadata,
    OffsetsHandler,
    commits_for_members,
    refuse_offsets,
)
from knowledgepulse_kafka.output_batch import Batch, new_batch
from knowledgepulse_kafka.private_parts import (
    ACCUMULATOR,
    ADD_PARTITIONS,
    COMMIT_OFFSETS,
    DRAINED,
    FIND_COORDINATOR,
    KNOWN_PARTITIONS,
    PARTITIONS_FOR_TOPIC,
    SENDER,
    TRANSACTION,
    TRANSACTION_END,
    UNSENT_BATCHES,
)
from knowledgepulse_kafka.records import NO_TIMESTAMP, UNTIMED, OutputRecord
from knowledgepulse_kafka.refused_record import InvalidRecord
from knowledgepulse_kafka.request_waits import Waits
from knowledgepulse_kafka.throttle import Throttle
from knowledgepulse_kafka.topics import gone, missing_topics

# Seconds to wait for the end of a transaction whose caller was cancelled, and to abandon a producer.
_CANCELLED_LIMIT = _ABANDON_LIMIT = 1.0


_CLIENT_BATCH_BYTES = 16_384
"""aiokafka's default of the largest batch."""


class ForgottenIdError(ProducerFenced):  # type: ignore[misc]  # aiokafka is untyped
    """The coordinator has forgotten an idle transactional id (``transactional.id.expiration.ms``).

    The client ends with any error of this kind, but would log another one with a traceback.
    """


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch that was handed to the client.

    Attributes:
        records: its records, in order.
        delivery: the client's future of its first offset.
    """

    records: list[OutputRecord]
    delivery: asyncio.Future[RecordMetadata]

    async def written(self) -> int:
        """Wait until the batch is written; return its first offset.

        Raises:
            RefusedError: the broker refused the batch.
            KafkaError: it was not written for another reason.
        """
        try:
            return int((await self.delivery).offset)
        except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
            raise self._refused(TooLargeError, error) from error
        except InvalidTimestampError as error:
            raise self._refused(TimestampError, error) from error
        except (InvalidRecord, UnsupportedForMessageFormatError) as error:
            raise self._refused(UnacceptableError, error) from error

    def _refused(self, cause: type[DeliveryError], error: KafkaError) -> RefusedError:
        # This text is logged, so it names the topic but never the content.
        text = f"{self.records[0].topic}: {type(error).__name__}"
        return RefusedError(Refusal(self.records, cause(text)))


class TransactionalProducer(AIOKafkaProducer):  # type: ignore[misc]  # aiokafka is untyped
    """A transactional producer that commits a group's offsets as a member of the group (KIP-447).

    The caller logs the error of a transaction, so this class keeps asyncio from logging the same error again.

    Args:
        throttle: notes the times for which brokers throttle the producer.
        waits: notes what the producer waits for.
        remedy: what messages tell about missing topics.
        arguments: those of aiokafka's producer.
    """

    def __init__(
        self, *, throttle: Throttle, waits: Waits | None = None, remedy: str = "", **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self._batch_bytes: int = arguments.get("max_batch_size", _CLIENT_BATCH_BYTES)
        PARTITIONS_FOR_TOPIC.replace(self.client.cluster, partial(_partitions_of, self.client.cluster))
        adapted(self, throttle, waits)
        self._group = GroupMetadata("")
        self._remedy = remedy
        self._known_topics: set[str] = set()
        sender = SENDER.of(self)
        self._add_partitions = ADD_PARTITIONS.of(sender)
        ADD_PARTITIONS.replace(sender, self._begin)
        COMMIT_OFFSETS.replace(sender, self._commit_offsets)  # aiokafka's names no member

    async def start(self) -> None:
        """Connect, and end the transaction of an earlier producer with the same id.

        Raises:
            IncompatibleBrokerVersion: the coordinator cannot commit a group's offsets for a member.
            KafkaError: the brokers refuse the transactional id or the connection.
        """
        await super().start()
        find_coordinator = FIND_COORDINATOR.of(SENDER.of(self))  # any other broker may be down
        node = await find_coordinator(CoordinationType.TRANSACTION, TRANSACTION.of(self).transactional_id)
        response = await self.client.send(node, ApiVersionRequest(), group=ConnectionGroup.COORDINATION)
        if not commits_for_members({key: version for key, _, version in response.api_versions}):
            raise IncompatibleBrokerVersion("transactions of a group's members need Kafka 2.5 or later")

    async def send_batches(
        self, place: TopicPartition, records: Sequence[OutputRecord], alone: Collection[OutputRecord]
    ) -> list[SentBatch]:
        """Send records to a partition in as few batches as possible.

        Args:
            place: the topic and the partition.
            records: the records, in order.
            alone: the records that are sent in batches of their own.

        Raises:
            RefusedError: the client cannot send a record.
            TopicError: there is no such partition.
            KafkaError: the producer can send nothing more.
        """
        await self._require(place)
        sent = []
        for builder, batch in self._batched(records, alone):
            delivery = await self.send_batch(builder, place.topic, partition=place.partition)
            delivery.add_done_callback(retrieve_exception)
            sent.append(SentBatch(batch, delivery))
        return sent

    async def _require(self, place: TopicPartition) -> None:
        """Check that a partition exists; the client would end with an AssertionError."""
        try:
            partitions = await self.partitions_for(place.topic)
            if place.partition not in partitions:
                await self.client.force_metadata_update()
                partitions = await self.partitions_for(place.topic)
        except UnknownTopicOrPartitionError:
            raise missing_topics([place.topic], self._remedy) from None
        self._known_topics.add(place.topic)
        if place.partition not in partitions:
            raise TopicError(
                f"{place.topic} was recreated without partition {place.partition}; delete it"
                + (f"; {self._remedy}" if self._remedy else "")
            )

    async def missing_topics(self) -> list[str]:
        """Return the topics to which records were sent, and which are gone."""
        return await gone(self.client, sorted(self._known_topics - self.client.cluster.topics()))

    def _batched(
        self, records: Sequence[OutputRecord], alone: Collection[OutputRecord]
    ) -> list[tuple[Batch, list[OutputRecord]]]:
        batches: list[tuple[Batch, list[OutputRecord]]] = []
        was_alone, suspects = True, set(map(id, alone))
        for record in records:
            is_alone = id(record) in suspects
            if was_alone or is_alone or not _append(batches[-1][0], record):
                batches.append((new_batch(self._batch_bytes), []))
                _append(batches[-1][0], record)
            batches[-1][1].append(record)
            was_alone = is_alone
        return batches

    async def send_group_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commit a group's offsets in the open transaction.

        Raises:
            CommitFailedError: the group has rebalanced, so the transaction can only be aborted.
            KafkaError: the brokers refused the offsets.
        """
        self._group = group
        await self.send_offsets_to_transaction(offsets, group.group)

    async def _begin(self, partitions: Collection[TopicPartition]) -> Any:
        """Add partitions to the transaction, which for the coordinator begins it."""
        try:
            return await self._add_partitions(partitions)
        except InvalidProducerIdMapping as error:
            raise ForgottenIdError from error

    async def _commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: str) -> None:
        """Commit a group's offsets once the records are written.

        A broker verifies one request of a transaction at a time. It refuses the other one for now, and the
        client would send it again only after 100 ms (KIP-890: NOT_ENOUGH_REPLICAS).
        """
        await ACCUMULATOR.of(self).flush_for_commit()
        sender = SENDER.of(self)
        try:
            node = await FIND_COORDINATOR.of(sender)(CoordinationType.GROUP, group)
        except GroupAuthorizationFailedError as error:
            refuse_offsets(sender, error)
        else:
            await OffsetsHandler(sender, offsets, self._group).do(node)

    async def abort_transaction(self) -> None:
        """Abort the open transaction, but wait no longer than a moment if the caller was cancelled.

        The brokers abort it by themselves then.
        """
        self._retrieve_error()
        caller = asyncio.current_task()
        is_cancelled = caller is not None and caller.cancelling() > 0
        with suppress(TimeoutError):
            async with asyncio.timeout(_CANCELLED_LIMIT if is_cancelled else None):
                await super().abort_transaction()

    async def stop(self) -> None:
        """Send the remaining records and disconnect."""
        await super().stop()
        self._retrieve_error()

    def _retrieve_error(self) -> None:
        # Nobody need wait for a transaction's end, and nobody waits for a batch to be sent.
        waiting = [TRANSACTION_END.of(TRANSACTION.of(self))]
        for unsent in UNSENT_BATCHES.of(ACCUMULATOR.of(self)).values():
            waiting += [DRAINED.of(batch) for batch in unsent]
        for future in waiting:
            if future is not None and future.done():
                retrieve_exception(future)


def _partitions_of(cluster: Any, topic: str) -> Collection[int] | None:
    """Return a topic's partitions, as aiokafka does, which makes a set of them four times a batch."""
    partitions = KNOWN_PARTITIONS.of(cluster).get(topic)
    return None if partitions is None else partitions.keys()


def _append(batch: Batch, record: OutputRecord) -> bool:
    """Append a record to a batch; return False if the batch is full."""
    timestamp = record.timestamp_ms
    if timestamp == NO_TIMESTAMP:
        timestamp = time.time_ns() // 1_000_000
    elif timestamp == UNTIMED:
        timestamp = NO_TIMESTAMP
    try:
        appended = batch.append(
            timestamp=timestamp, key=record.key, value=record.value, headers=[*record.headers]
        )
    except Exception as error:
        problem = DeliveryError(f"{record.topic}: {type(error).__name__}")
        raise RefusedError(Refusal([record], problem)) from error
    return appended is not None


async def abandon(producer: AIOKafkaProducer) -> None:
    """Stop a producer that would retry for as long as the brokers are away, and drop its unsent records.

    The client's own ``close`` waits for the requests under way, which are sent again without end.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_ABANDON_LIMIT):
            while requests := _requests_of(producer):
                for request in requests:
                    request.cancel()
                await asyncio.wait(requests)
            await producer.client.close()


def _requests_of(producer: AIOKafkaProducer) -> list[asyncio.Task[Any]]:
    """Return the tasks that run a method of the producer's sender, or one in its place: a request each."""
    owners = (producer, SENDER.of(producer))
    others = asyncio.all_tasks() - {asyncio.current_task()}
    frames = {task: getattr(task.get_coro(), "cr_frame", None) for task in others}
    return [task for task, frame in frames.items() if frame and frame.f_locals.get("self") in owners]
