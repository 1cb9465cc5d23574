"""Publish several records in one transaction: all of them or none (KIP-98, KIP-447)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Protocol, Self, TypeAlias

from aiokafka import TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    CoordinatorNotAvailableError,
    IncompatibleBrokerVersion,
    InvalidTransactionTimeout,
    KafkaError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    UnknownError,
)
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_kafka.broker_requests import refused_producer
from knowledgepulse_kafka.client_factory import client_arguments
from knowledgepulse_kafka.commit_outcome import CommitOutcome, Committed, Rebalanced, Refused, Throttled
from knowledgepulse_kafka.config import Config
from knowledgepulse_kafka.connection_diagnosis import explanation
from knowledgepulse_kafka.errors import (
    BrokerError,
    ClientError,
    DeliveryError,
    IdleError,
    LostPartitionsError,
    Refusal,
    RefusedError,
    ThrottledError,
    first_of_group,
    retrieve_exception,
)
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.partitioner import PARTITIONER
from knowledgepulse_kafka.producer import ForgottenIdError, SentBatch, TransactionalProducer, abandon
from knowledgepulse_kafka.records import Location, OutputRecord, Position
from knowledgepulse_kafka.request_waits import TRANSACTION, Waits, error_name
from knowledgepulse_kafka.rights import Right, denied_right, missing_rights
from knowledgepulse_kafka.throttle import Throttle
from knowledgepulse_kafka.throttling import PRODUCER_QUOTA, HeldBackError, logged_throttle

logger = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS = 10_000
"""The age at which brokers abort a dead process's transaction; until then, it blocks readers."""
_TIMEOUT = TRANSACTION_TIMEOUT_MS // 1000

_SENDING_LIMIT = 5.0
"""Seconds in which a transaction's records must be sent; the rest of its timeout is for other requests."""

# Seconds for stopping the client, which would wait without end for records of a topic that was deleted.
_STOP_LIMIT = 3.0

# The client waits without end for a topic that was deleted, but it notices the deletion.
_METADATA_MAX_AGE_MS = 10_000

BATCH_BYTES = 131_072
"""The default size limit of a batch, far below the limits of topics.

The client sends one batch of a partition at a time, so small batches take many requests. In large ones, many
records are sent again when the broker refuses one.
"""

TOPIC_ID = "kp-topic "
"""The prefix of a topic's id in the metadata of a position."""


_SINGLE_BROKER = (
    "; a single broker needs transaction.state.log.replication.factor=1 and transaction.state.log.min.isr=1"
)


Positions: TypeAlias = Mapping[tuple[str, int], Position]
"""The positions to commit, by topic and partition."""

_NO_POSITIONS: Positions = MappingProxyType({})


class RecordWriter(Protocol):
    """Writes records in the open transaction."""

    async def __call__(
        self, records: Sequence[OutputRecord], alone: Collection[OutputRecord] = ()
    ) -> list[Location]:
        """Write records, in order within each partition, and wait for the brokers' confirmation.

        Args:
            records: the records.
            alone: the records that are sent in batches of their own.

        Returns:
            the partition and the offset of each record.

        Raises:
            RefusedError: the client or brokers refused records.
        """
        ...


class TransactionalPublisher:
    """The only producer with its transactional id.

    An asynchronous context manager. On entry, an earlier producer with the same id is fenced off, and its
    open transaction is completed or aborted.

    Args:
        config: the connection.
        transactional_id: the transactional id.
        batch_bytes: the size limit of a batch with more than one record. Brokers refuse a batch as a whole,
            so it should be far below the limit of each topic.
        new_producer: makes the client.
        granted: the name that the right is granted on: a prefix with a ``*``, or the transactional id.
        throttle: notes the times for which brokers throttle the producer; by default, it logs them.

    Attributes:
        waits: what the producer waits for.
    """

    def __init__(
        self,
        config: Config,
        transactional_id: str,
        batch_bytes: int = BATCH_BYTES,
        new_producer: Callable[..., TransactionalProducer] = TransactionalProducer,
        granted: str | None = None,
        throttle: Throttle | None = None,
    ) -> None:
        self.waits = Waits(explain=partial(explanation, config))
        self._config = config
        self._throttle = throttle or logged_throttle(PRODUCER_QUOTA)
        self._id = transactional_id
        self._granted = granted or transactional_id
        self._new_producer = partial(
            new_producer,
            **client_arguments(config),
            transactional_id=transactional_id,
            metadata_max_age_ms=_METADATA_MAX_AGE_MS,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=int(config.request_timeout * 1000),
            max_batch_size=batch_bytes,
            throttle=self._throttle,
            waits=self.waits,
            remedy=config.remedy,
        )
        self._transaction_began = 0.0
        self._producer = self._new_producer()
        self._start_began: float | None = None

    async def __aenter__(self) -> Self:
        self._start_began = time.monotonic()
        try:
            async with asyncio.timeout(self._config.request_timeout):
                await self._producer.start()
        except UnknownError as error:
            await self._stop()
            raise refused_producer(self._config, error) from error
        except (KafkaError, TimeoutError) as error:
            await self._stop()
            raise self._translate(error) from error
        except asyncio.CancelledError:
            await self._stop()
            raise
        finally:
            self._start_began = None
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _stop(self) -> None:
        try:
            async with asyncio.timeout(_STOP_LIMIT):
                await self._producer.stop()
        except TimeoutError:
            await abandon(self._producer)

    @property
    def start_age(self) -> float:
        """Seconds for which the producer has been starting; 0 unless it is."""
        return 0.0 if self._start_began is None else time.monotonic() - self._start_began

    async def missing_topics(self) -> list[str]:
        """Return the topics to which records were sent, and which are gone."""
        return await self._producer.missing_topics()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[RecordWriter]:
        """Open a transaction, commit it on exit and abort it on an error.

        A transaction begins once the brokers throttle the producer no more. They then answer its first
        records at once, however far these exceed a quota.

        Raises:
            RefusedError: the client or a broker refused records; nothing was published.
            ThrottledError: a quota would have kept the transaction open; nothing was published.
            IdleError: the brokers had forgotten the producer; nothing was published.
            DeliveryError: the brokers did not confirm the transaction. None of its records are committed, or
                all of them if only the response to the commit was lost.
            SecurityError: a right is missing.
        """
        await asyncio.sleep(self._throttle.remaining)
        self._throttle.begin_sending(_SENDING_LIMIT)
        self._transaction_began = time.monotonic()
        try:
            async with self._producer.transaction():
                yield self._write
        except RefusedError:
            # The numbers of the refused records are missing in the producer's sequence (KIP-98). And a batch
            # that was not answered may arrive late, in the next transaction: its epoch must be a former one.
            await self._start_again()
            raise
        except HeldBackError as error:
            await self._start_again()
            raise ThrottledError(
                f"{self._id}: a quota ({PRODUCER_QUOTA}) is exceeded; "
                f"the brokers read nothing for {self._throttle.remaining:.0f} s"
            ) from error
        except ForgottenIdError as error:
            await self._start_again()
            raise IdleError(
                f"{self._id}: the brokers have forgotten the producer, which was idle for longer than their "
                "transactional.id.expiration.ms"
            ) from error
        except CommitFailedError as error:
            raise LostPartitionsError("the group has rebalanced") from error
        except KafkaError as error:
            raise self._translate(error) from error

    async def commit(
        self,
        records: Sequence[OutputRecord],
        positions: Positions = _NO_POSITIONS,
        group: GroupMetadata | None = None,
        alone: Collection[OutputRecord] = (),
    ) -> CommitOutcome:
        """Publish records and commit a group's positions in one transaction: all of them or none.

        Args:
            records: the records, in order within each topic and partition.
            positions: the positions.
            group: the group, with the member that has read up to the positions; None without positions.
            alone: the records that are sent in batches of their own.

        Raises:
            DeliveryError: see :meth:`transaction`.
            SecurityError: a right is missing.
        """
        try:
            return await self._commit(records, positions, group, alone)
        except IdleError as error:
            logger.info("%s; it starts again", error)
            return await self._commit(records, positions, group, alone)

    async def _commit(
        self,
        records: Sequence[OutputRecord],
        positions: Positions,
        group: GroupMetadata | None,
        alone: Collection[OutputRecord],
    ) -> CommitOutcome:
        try:
            async with self.transaction():
                if group is None:
                    written = await self._write(records, alone)
                else:
                    written = await self._write_with_positions(records, positions, group, alone)
        except RefusedError as error:
            return Refused(error)
        except ThrottledError as error:
            return Throttled(str(error))
        except LostPartitionsError:
            return Rebalanced()
        return Committed([location.offset for location in written])

    async def _write_with_positions(
        self,
        records: Sequence[OutputRecord],
        positions: Positions,
        group: GroupMetadata,
        alone: Collection[OutputRecord],
    ) -> list[Location]:
        """Write records, while the coordinator adds the group: the transaction is open for less long."""
        batches = await self._send(records, alone)
        offsets = {
            TopicPartition(*place): OffsetAndMetadata(position.offset, metadata_of(position))
            for place, position in positions.items()
        }
        offsets_sent = asyncio.create_task(self._producer.send_group_offsets(offsets, group))
        offsets_sent.add_done_callback(retrieve_exception)
        try:
            written = await _written(batches)
            await offsets_sent
        finally:
            offsets_sent.cancel()
        return [written[id(record)] for record in records]

    async def _write(
        self, records: Sequence[OutputRecord], alone: Collection[OutputRecord] = ()
    ) -> list[Location]:
        written = await _written(await self._send(records, alone))
        return [written[id(record)] for record in records]

    async def _send(
        self, records: Sequence[OutputRecord], alone: Collection[OutputRecord]
    ) -> list[tuple[int, SentBatch]]:
        """Hand records to the client; return the batches with their partitions, in order."""
        by_place: defaultdict[TopicPartition, list[OutputRecord]] = defaultdict(list)
        for record in records:
            by_place[await self._place(record)].append(record)
        with first_of_group():
            async with asyncio.TaskGroup() as group:
                sending = {
                    place: group.create_task(self._producer.send_batches(place, sent, alone))
                    for place, sent in by_place.items()
                }
        return [(place.partition, batch) for place, task in sending.items() for batch in task.result()]

    async def _place(self, record: OutputRecord) -> TopicPartition:
        if record.partition is not None:
            return TopicPartition(record.topic, record.partition)
        partitions = sorted(await self._producer.partitions_for(record.topic))
        return TopicPartition(record.topic, PARTITIONER(record.key, partitions, partitions))

    async def _start_again(self) -> None:
        await self._stop()
        self._producer = self._new_producer()
        await self.__aenter__()

    def _translate(self, error: KafkaError | TimeoutError) -> ClientError:
        translated: ClientError | None
        match error:
            case TransactionalIdAuthorizationFailed():
                translated = missing_rights([Right("Write", "transactional-id", self._granted)])
            case ProducerFenced():
                problem = f"{self._fenced()}; only the reported records are published"
                translated = DeliveryError(f"{self._id}: {problem}")
            case TimeoutError():
                translated = DeliveryError(f"{self._id}: {self._late()}")
            case InvalidTransactionTimeout():
                translated = BrokerError(
                    f"transactions take up to {_TIMEOUT} s, but the brokers' transaction.max.timeout.ms "
                    f"is less than {TRANSACTION_TIMEOUT_MS}"
                )
            case IncompatibleBrokerVersion():
                translated = BrokerError(
                    f"{self._config.prefix}bootstrap_servers: {self._config.bootstrap_servers}: {error}"
                )
            case _:
                translated = denied_right(error, "Write")
        if translated is None:
            problem = str(error) or type(error).__name__
            translated = DeliveryError(f"{self._id}: {problem}{self._waited()}")
        return translated

    def _fenced(self) -> str:
        """Return why another producer has the transactional id: the brokers' own, after a time-out."""
        age = time.monotonic() - self._transaction_began
        if age < _TIMEOUT:
            return "another process with this transactional id took over"
        return f"a transaction took longer than {_TIMEOUT} s, so the brokers aborted it{self._waited()}"

    def _late(self) -> str:
        """Return why no transaction could begin."""
        limit = f"{self._config.request_timeout:g} s ({self._config.prefix}request_timeout)"
        text = f"no transaction could begin within {limit}{self._waited()}"
        coordinator = error_name(CoordinatorNotAvailableError.errno)
        errors = [wait.error for wait in self.waits.current(TRANSACTION)]
        return text if errors and coordinator not in errors else text + _SINGLE_BROKER

    def _waited(self) -> str:
        waits = "; ".join(map(str, self.waits.current(TRANSACTION)))
        return f"; waited for {waits}" if waits else ""


async def _written(sent: Sequence[tuple[int, SentBatch]]) -> dict[int, Location]:
    """Wait until all batches are written; return the location of each record by its identity.

    Args:
        sent: the batches with their partitions, in order.

    Raises:
        RefusedError: batches were refused; in all partitions, so that one more transaction can mend them.
        KafkaError: a batch was not written for another reason.
    """
    written, refusals = dict[int, Location](), list[Refusal]()
    for partition, batch in sent:
        try:
            first = await batch.written()
        except RefusedError as refused:
            refusals += refused.refusals
        except OutOfOrderSequenceNumber:
            if not refusals:  # otherwise, the batch is behind one that was refused
                raise
        else:
            for number, record in enumerate(batch.records):
                written[id(record)] = Location(partition, first + number)
    if refusals:
        raise RefusedError(*refusals)
    return written


def metadata_of(position: Position) -> str:
    """Return the metadata with which a position is committed."""
    return TOPIC_ID + position.topic_id.hex() if position.topic_id else ""
