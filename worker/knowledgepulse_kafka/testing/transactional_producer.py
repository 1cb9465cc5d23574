"""A transactional producer on simulated brokers, modelled on aiokafka's."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Self, TypeAlias

from aiokafka import TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    ConcurrentTransactions,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    InvalidProducerEpoch,
    KafkaError,
    ProducerFenced,
    UnknownMemberIdError,
)
from aiokafka.structs import OffsetAndMetadata, RecordMetadata
from msgspec.structs import replace

from knowledgepulse_kafka.errors import retrieve_exception
from knowledgepulse_kafka.group_offsets import GroupMetadata
from knowledgepulse_kafka.producer import SentBatch
from knowledgepulse_kafka.records import NO_TIMESTAMP, OutputRecord
from knowledgepulse_kafka.testing.brokers import Batch, Cluster, size
from knowledgepulse_kafka.testing.clients import BACKOFF, Connection
from knowledgepulse_kafka.testing.group import Place
from knowledgepulse_kafka.testing.member import Moment
from knowledgepulse_kafka.testing.transactions import GROUP
from knowledgepulse_kafka.testing.virtual_time import OWNER
from knowledgepulse_kafka.throttle import Throttle
from knowledgepulse_kafka.throttling import HeldBackError

_Request: TypeAlias = Callable[..., Awaitable[None]]


class _Delivered(Batch):
    """A batch with the future of its first record."""

    def __init__(self, records: Iterable[OutputRecord], delivery: asyncio.Future[RecordMetadata]) -> None:
        super().__init__(records)
        self.delivery = delivery


class SimProducer:
    """What a program uses of a :class:`~knowledgepulse_kafka.producer.TransactionalProducer`.

    It retries forever. A transaction's requests run in separate tasks, which continue even if the caller is
    cancelled.
    """

    def __init__(
        self,
        cluster: Cluster,
        host: str,
        moment: Moment = lambda _: None,
        *,
        transactional_id: str,
        transaction_timeout_ms: int,
        request_timeout_ms: int = 40_000,
        max_batch_size: int = 16_384,
        throttle: Throttle | None = None,
        writer: str = "",
        taken: Callable[[], None] = lambda: None,
        **_: object,
    ) -> None:
        self._cluster = cluster
        self._connection = Connection(
            cluster, host, f"producer {transactional_id}", request_timeout_ms / 1000
        )
        self._moment = moment
        self._id = transactional_id
        self._timeout = transaction_timeout_ms / 1000
        self._batch_bytes = max_batch_size
        self._throttle = throttle or Throttle(clock=cluster.loop.time)
        self._throttled_until: dict[int, float] = {}
        self._writer = writer
        self._taken = taken
        self._loop = cluster.loop
        self._epoch = -1
        self._error: Exception | None = None
        self._is_open = False
        self._added: set[Place] = set()
        self._written: dict[Place, int] = {}
        self._queues: dict[Place, deque[_Delivered]] = {}
        self._sending: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._sender = self.client = self  # which `abandon` closes

    async def start(self) -> None:
        """Fence off an earlier producer with the same transactional id."""
        transactions = self._cluster.transactions
        self._epoch = await self._coordinate(transactions.begin, self._id, self._timeout)

    async def stop(self) -> None:
        """Send the remaining records; an open transaction stays open."""
        for task in (self._sending, self._task):
            if task is not None:
                await asyncio.wait([task])

    async def close(self) -> None:
        """Send nothing more."""
        for task in (self._sending, self._task):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the topic's partitions."""
        return set(range(len(self._cluster.topics[topic].logs)))

    def transaction(self) -> Self:
        """Return itself: entering begins a transaction, leaving ends it."""
        return self

    async def __aenter__(self) -> Self:
        if self._error is not None:
            raise self._error
        if self._is_open:
            raise RuntimeError("a transaction at a time")
        self._is_open = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self._in_task(self._end, True)
        elif self._error is None:
            await self._in_task(self._end, False)

    # --- records

    async def send_batches(
        self, place: TopicPartition, records: Sequence[OutputRecord], alone: Collection[OutputRecord]
    ) -> list[SentBatch]:
        """Send records to a partition, some of them in batches of their own."""
        self._taken()
        batches: list[list[OutputRecord]] = []
        was_alone = True
        for record in records:
            is_alone = any(single is record for single in alone)
            is_full = was_alone or is_alone or sum(map(size, [*batches[-1], record])) > self._batch_bytes
            if is_full:
                batches.append([])
            batches[-1].append(record)
            was_alone = is_alone
        sent = []
        for taken in batches:
            if self._error is not None:
                raise self._error
            batch = _Delivered(map(self._timed, taken), self._loop.create_future())
            self._queues.setdefault(place, deque()).append(batch)
            sent.append(SentBatch(taken, batch.delivery))
            self._moment("output taken")
            if self._sending is None or self._sending.done():
                self._sending = asyncio.create_task(self._send_batches())
        return sent

    def _timed(self, record: OutputRecord) -> OutputRecord:
        if record.timestamp_ms != NO_TIMESTAMP:
            return record
        owner = OWNER.get()
        now = self._cluster.epoch + self._loop.time() + (0.0 if owner is None else owner.skew)
        return replace(record, timestamp_ms=int(now * 1000))

    # --- positions and ends

    async def send_group_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commit positions of a group with the transaction."""
        if not group.group:
            raise ValueError("a group is named")
        await self._in_task(self._commit, {tuple(tp): offset for tp, offset in offsets.items()}, group)

    async def _in_task(self, request: _Request, *arguments: object) -> None:
        self._task = asyncio.create_task(self._after(self._task, request, *arguments))
        self._task.add_done_callback(retrieve_exception)  # whoever waits for it may be cancelled
        await asyncio.shield(self._task)

    @staticmethod
    async def _after(former: asyncio.Task[None] | None, request: _Request, *arguments: object) -> None:
        """Run one request after another, even if nobody awaits the former any more."""
        if former is not None:
            await asyncio.wait([former])
        await request(*arguments)

    async def _commit(self, places: Mapping[Place, OffsetAndMetadata], group: GroupMetadata) -> None:
        await self._add({GROUP})
        self._moment("offsets sent")
        while True:
            broker = self._cluster.group.coordinator
            operation = self._cluster.transactions.add_offsets
            try:
                await self._ask(broker, operation, self._id, self._epoch, places, group)
            except (IllegalGenerationError, UnknownMemberIdError) as error:
                raise CommitFailedError from error  # the transaction can only be aborted
            except GroupAuthorizationFailedError:
                raise  # likewise
            except KafkaError as error:
                await self._pause(error)
            else:
                return

    async def _end(self, commits: bool) -> None:
        if self._sending is not None:
            await asyncio.wait([self._sending])
        if self._error is not None:
            raise self._error
        if self._added:
            self._moment("ending")
            await self._coordinate(self._cluster.transactions.end, self._id, self._epoch, commits)
            self._moment("ended")
        self._added = set()
        self._is_open = False

    async def _add(self, places: set[Place]) -> None:
        if new := places - self._added:
            await self._coordinate(self._cluster.transactions.add, self._id, self._epoch, new)
            self._added |= new

    # --- requests

    async def _send_batches(self) -> None:
        """Send all batches in order, first adding their partitions to the transaction."""
        await asyncio.sleep(0)
        while self._queues and self._error is None:
            batches = {at: queue.popleft() for at, queue in self._queues.items()}
            self._queues = {at: queue for at, queue in self._queues.items() if queue}
            for at, batch in batches.items():
                batch.sequence = self._written.get(at, 0)
                self._written[at] = batch.sequence + len(batch)
            try:
                await self._add(set(batches))
            except KafkaError as error:
                _fail(batches.values(), error)
                return
            self._moment("output sent")
            while batches := await self._produce(batches):
                await asyncio.sleep(BACKOFF)
                self._connection.refresh()
            self._moment("output written")

    async def _produce(self, batches: Mapping[Place, _Delivered]) -> dict[Place, _Delivered]:
        """Send batches to the leaders of their partitions; return the batches that must be sent again."""
        by_broker: dict[int, dict[Place, _Delivered]] = {}
        for at, batch in sorted(batches.items()):
            by_broker.setdefault(self._connection.leader(at), {})[at] = batch
        again = {}
        for broker, requested in by_broker.items():
            try:
                results = await self._request(broker, requested)
            except KafkaError as error:
                results = dict.fromkeys(requested, error)
            for at, result in results.items():
                if isinstance(result, KafkaError) and result.retriable:
                    again[at] = batches[at]
                elif isinstance(result, KafkaError):
                    fenced = isinstance(result, InvalidProducerEpoch)
                    _fail([batches[at]], ProducerFenced() if fenced else result)
                elif not batches[at].delivery.done():  # the producer may have failed meanwhile
                    batches[at].delivery.set_result(RecordMetadata(*at, at, result, -1, 0, 0))
        return again

    async def _request(self, broker: int, batches: Mapping[Place, _Delivered]) -> dict[Place, Any]:
        """Send batches once the broker reads them, unless that is after the transaction's deadline."""
        until = self._throttled_until.get(broker, 0.0)
        if until > self._throttle.deadline:
            raise HeldBackError
        if (seconds := self._throttle.seconds_until(until)) > 0:
            await asyncio.sleep(seconds)
        producer = (self._id, self._epoch)
        results, throttled = await self._connection.call(
            broker, lambda reply: self._cluster.produce(broker, batches, self._writer, producer, reply)
        )
        if throttled:
            self._throttled_until[broker] = self._throttle.note(throttled)
        return results

    async def _coordinate(self, operation: Callable[..., None], *arguments: object) -> Any:
        """Send a request to the coordinator of transactions, and repeat it until it is answered."""
        while True:
            try:
                return await self._ask(self._cluster.transactions.coordinator, operation, *arguments)
            except KafkaError as error:
                await self._pause(error)

    def _ask(self, broker: int, operation: Callable[..., None], *arguments: object) -> Awaitable[Any]:
        return self._connection.call(
            broker, lambda reply: operation(broker, *arguments, reply), "transactions"
        )

    async def _pause(self, error: KafkaError) -> None:
        """Wait before the next attempt; raise the error if it is final."""
        if isinstance(error, InvalidProducerEpoch):
            self._error = ProducerFenced()
        elif not error.retriable and not isinstance(error, ConcurrentTransactions):
            self._error = error
        if self._error is not None:
            for queue in self._queues.values():
                _fail(queue, self._error)
            raise self._error from error
        await asyncio.sleep(BACKOFF)


def _fail(batches: Iterable[_Delivered], error: Exception) -> None:
    for batch in batches:
        if not batch.delivery.done():
            batch.delivery.set_exception(error)
            batch.delivery.exception()  # nobody need wait for it
