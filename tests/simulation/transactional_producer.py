"""A transactional producer on simulated brokers, modelled on aiokafka's."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace

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
from aiokafka.structs import RecordMetadata

from knowledgepulse_kafka.producer import SentBatch
from knowledgepulse_kafka.records import NO_TIMESTAMP
from knowledgepulse_kafka.throttle import Throttle
from knowledgepulse_kafka.throttling import HeldBackError
from simulation.brokers import size
from simulation.clients import BACKOFF, Connection
from simulation.loop import OWNER
from simulation.transactions import GROUP


class _Batch(list):
    """A batch of a partition.

    Attributes:
        sequence: the number of records that were sent to the partition before it; None until it is sent.
        delivery: the future of its first record.
    """

    def __init__(self, records, delivery):
        super().__init__(records)
        self.sequence = None
        self.delivery = delivery


class SimProducer:
    """The methods of ``TransactionalProducer`` that the worker uses; it retries forever.

    A transaction's requests run in separate tasks, which continue even if the caller is cancelled.
    """

    def __init__(
        self,
        cluster,
        host,
        moment,
        *,
        transactional_id,
        transaction_timeout_ms,
        request_timeout_ms=40_000,
        max_batch_size=16_384,
        throttle=None,
        writer="",
        taken=lambda: None,
        **_,
    ):
        self._cluster = cluster
        self._connection = Connection(
            cluster, host, f"producer {transactional_id}", request_timeout_ms / 1000
        )
        self._moment = moment
        self._id = transactional_id
        self._timeout = transaction_timeout_ms / 1000
        self._batch_bytes = max_batch_size
        self._throttle = throttle or Throttle(clock=cluster.loop.time)
        self._throttled_until = {}
        self._writer = writer
        self._taken = taken
        self._loop = cluster.loop
        self._epoch = -1
        self._error = None
        self._is_open = False
        self._added = set()
        self._written = {}
        self._queues = {}
        self._sending = None
        self._task = None
        self._sender = self.client = self  # which `abandon` closes

    async def start(self):
        transactions = self._cluster.transactions
        self._epoch = await self._coordinate(transactions.begin, self._id, self._timeout)

    async def stop(self):
        """Send the remaining records; an open transaction stays open."""
        for task in (self._sending, self._task):
            if task is not None:
                await asyncio.wait([task])

    async def close(self):
        """Send nothing more."""
        for task in (self._sending, self._task):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])

    async def partitions_for(self, topic):
        return set(range(len(self._cluster.topics[topic].logs)))

    def transaction(self):
        return self

    async def __aenter__(self):
        if self._error is not None:
            raise self._error
        assert not self._is_open, "a transaction at a time"
        self._is_open = True
        return self

    async def __aexit__(self, kind, error, traceback):
        if kind is None:
            await self._in_task(self._end, True)
        elif self._error is None:
            await self._in_task(self._end, False)

    # --- records

    async def send_batches(self, place, records, alone):
        self._taken()
        batches, was_alone = [], True
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
            batch = _Batch(map(self._timed, taken), self._loop.create_future())
            self._queues.setdefault(place, deque()).append(batch)
            sent.append(SentBatch(taken, batch.delivery))
            self._moment("output taken")
            if self._sending is None or self._sending.done():
                self._sending = asyncio.create_task(self._send_batches())
        return sent

    def _timed(self, record):
        if record.timestamp_ms != NO_TIMESTAMP:
            return record
        owner = OWNER.get()
        now = self._cluster.epoch + self._loop.time() + (0.0 if owner is None else owner.skew)
        return replace(record, timestamp_ms=int(now * 1000))

    # --- positions and ends

    async def send_group_offsets(self, offsets, group):
        assert group.group, "a group is named"
        await self._in_task(self._commit, {tuple(tp): offset for tp, offset in offsets.items()}, group)

    async def _in_task(self, request, *arguments):
        self._task = asyncio.create_task(self._after(self._task, request, *arguments))
        await asyncio.shield(self._task)

    @staticmethod
    async def _after(former, request, *arguments):
        """Run one request after another, even if nobody awaits the former any more."""
        if former is not None:
            await asyncio.wait([former])
            if not former.cancelled():
                former.exception()
        return await request(*arguments)

    async def _commit(self, places, group):
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

    async def _end(self, commits):
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

    async def _add(self, places):
        if new := places - self._added:
            await self._coordinate(self._cluster.transactions.add, self._id, self._epoch, new)
            self._added |= new

    # --- requests

    async def _send_batches(self):
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

    async def _produce(self, batches):
        """Send batches to the leaders of their partitions; return the batches that must be sent again."""
        by_broker = {}
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

    async def _request(self, broker, batches):
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

    async def _coordinate(self, operation, *arguments):
        """Send a request to the coordinator of transactions, and repeat it until it is answered."""
        while True:
            try:
                return await self._ask(self._cluster.transactions.coordinator, operation, *arguments)
            except KafkaError as error:
                await self._pause(error)

    def _ask(self, broker, operation, *arguments):
        return self._connection.call(
            broker, lambda reply: operation(broker, *arguments, reply), "transactions"
        )

    async def _pause(self, error):
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


def _fail(batches, error):
    for batch in batches:
        if not batch.delivery.done():
            batch.delivery.set_exception(error)
            batch.delivery.exception()  # nobody need wait for it
