"""Publish several records in one transaction: all of them or none (KIP-98, KIP-447)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self

from aiokafka import TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    KafkaError,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
)
from aiokafka.structs import OffsetAndMetadata, RecordMetadata

from knowledgepulse_worker.errors import DeliveryError, WorkerError
from knowledgepulse_worker.kafka.connection import client_arguments
from knowledgepulse_worker.kafka.partition import PARTITIONER
from knowledgepulse_worker.kafka.preflight.rights import Right, missing_rights
from knowledgepulse_worker.kafka.wire.group_offsets import GroupMetadata
from knowledgepulse_worker.kafka.wire.producer import SentBatch, TransactionalProducer
from knowledgepulse_worker.records.publisher import (
    LostPartitionsError,
    Position,
    RefusedError,
    retrieve_exception,
)
from knowledgepulse_worker.records.record import OutputRecord
from knowledgepulse_worker.settings import KafkaSettings

TRANSACTION_TIMEOUT_MS = 10_000
"""The age at which brokers abort a dead process's transaction; until then, it blocks readers."""

# Far more than the batch and record framing adds to key, value and headers (KIP-98's record format v2).
_FRAMING_BYTES = 4096

TOPIC_ID = "kp-topic "
"""The prefix of the raw topic's id in the metadata of a position."""


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A consumer group's next offset in a partition."""

    topic: str
    partition: int
    offset: int


class Send(Protocol):
    """Sends a record in the open transaction."""

    async def __call__(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None,
        partition: int | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Return a future of the record's topic, partition and offset."""
        ...


class TransactionalPublisher:
    """The only producer with its transactional id.

    An asynchronous context manager. On entry, an earlier producer with the same id is fenced off, and its
    open transaction is completed or aborted.

    Args:
        kafka: the connection.
        transactional_id: the transactional id.
        max_message_bytes: the size of the largest record that the topics accept.
        batch_bytes: the size limit of a batch with more than one record. Brokers refuse a batch as a whole,
            so it should be far below the limit of each topic.
        new_producer: makes the client.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        transactional_id: str,
        max_message_bytes: int,
        new_producer: Callable[..., TransactionalProducer] = TransactionalProducer,
        batch_bytes: int = 16_384,
    ) -> None:
        self._kafka = kafka
        self._id = transactional_id
        self._new_producer = partial(
            new_producer,
            **client_arguments(kafka),
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=int(kafka.request_timeout * 1000),
            max_batch_size=min(batch_bytes, max_message_bytes),
            max_request_size=max_message_bytes + _FRAMING_BYTES,
        )
        self._producer = self._new_producer()

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(self._kafka.request_timeout):
                await self._producer.start()
        except (KafkaError, TimeoutError) as error:
            await self._producer.stop()
            raise self._translate(error) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.stop()

    @asynccontextmanager
    async def transaction(
        self, *consumed: GroupOffset, group: GroupMetadata | None = None
    ) -> AsyncIterator[Send]:
        """Open a transaction, commit it on exit and abort it on an error.

        Args:
            *consumed: offsets to commit for the group in the same transaction.
            group: the group and the member that has read up to these offsets.

        Raises:
            DeliveryError: the brokers did not confirm the transaction, or the group has rebalanced. None of
                its records are committed, or all of them if only the response to the commit was lost.
            SecurityError: the right to the transactional id is missing.
        """
        try:
            async with self._producer.transaction():
                yield self._send
                if group is not None:
                    offsets = {TopicPartition(one.topic, one.partition): one.offset for one in consumed}
                    await self._producer.send_group_offsets(offsets, group)
        except KafkaError as error:
            raise self._translate(error) from error

    async def transact(
        self,
        topic: str,
        group: GroupMetadata,
        records: Sequence[OutputRecord],
        positions: Mapping[int, Position],
        alone: Collection[OutputRecord] = (),
    ) -> list[int]:
        """Publish records and commit a group's positions in one transaction.

        See :class:`~knowledgepulse_worker.records.publisher.Publish`.

        Args:
            topic: the topic of the positions.
            group: the group and the member that has read up to these positions.
            records: the records.
            positions: the positions by partition.
            alone: the records that are sent in batches of their own.
        """
        offsets = {
            TopicPartition(topic, partition): OffsetAndMetadata(position.offset, metadata_of(position))
            for partition, position in positions.items()
        }
        try:
            async with self._producer.transaction():
                sent = await self._send_all(records, alone)
                written = await _written(sent)
                await self._producer.send_group_offsets(offsets, group)
        except RefusedError:
            # The numbers of the refused records are missing in the producer's sequence (KIP-98).
            await self._start_again()
            raise
        except CommitFailedError as error:
            raise LostPartitionsError("the group has rebalanced") from error
        except KafkaError as error:
            raise self._translate(error) from error
        return [written[id(record)] for record in records]

    async def _send_all(
        self, records: Sequence[OutputRecord], alone: Collection[OutputRecord]
    ) -> list[SentBatch]:
        by_place: defaultdict[TopicPartition, list[OutputRecord]] = defaultdict(list)
        for record in records:
            by_place[await self._place(record)].append(record)
        try:
            async with asyncio.TaskGroup() as group:
                sending = [
                    group.create_task(self._producer.send_batches(place, some, alone))
                    for place, some in by_place.items()
                ]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        return [batch for task in sending for batch in task.result()]

    async def _place(self, record: OutputRecord) -> TopicPartition:
        if record.partition is not None:
            return TopicPartition(record.topic, record.partition)
        partitions = sorted(await self._producer.partitions_for(record.topic))
        return TopicPartition(record.topic, PARTITIONER(record.key, partitions, partitions))

    async def _start_again(self) -> None:
        await self._producer.stop()
        self._producer = self._new_producer()
        await self.__aenter__()

    async def _send(self, topic: str, value: bytes | None, **record: Any) -> asyncio.Future[RecordMetadata]:
        record["headers"] = list(record.get("headers", ()))
        delivery: asyncio.Future[RecordMetadata] = await self._producer.send(topic, value, **record)
        delivery.add_done_callback(retrieve_exception)
        return delivery

    def _translate(self, error: KafkaError | TimeoutError) -> WorkerError:
        if isinstance(error, TransactionalIdAuthorizationFailed):
            return missing_rights([Right("Write", "transactional-id", self._id)])
        if isinstance(error, ProducerFenced):
            return DeliveryError(
                f"{self._id}: another process with this transactional id took over, or a transaction took "
                f"longer than {TRANSACTION_TIMEOUT_MS // 1000} s; only the reported records are published"
            )
        if isinstance(error, TimeoutError):
            return DeliveryError(
                f"{self._id}: no transaction could begin within {self._kafka.request_timeout:g} s "
                "(kafka.request_timeout); a single broker needs transaction.state.log.replication.factor=1 "
                "and transaction.state.log.min.isr=1"
            )
        return DeliveryError(f"{self._id}: {type(error).__name__}: {error}")


async def _written(sent: Sequence[SentBatch]) -> dict[int, int]:
    """Wait until all batches are written; return the offset of each record by its identity."""
    written = {}
    for batch in sent:
        base_offset = await batch.written()
        written.update({id(record): base_offset + number for number, record in enumerate(batch.records)})
    return written


def metadata_of(position: Position) -> str:
    """Return the metadata with which a position is committed."""
    return TOPIC_ID + position.topic_id.hex() if position.topic_id else ""
