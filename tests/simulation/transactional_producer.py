"""A transactional producer on simulated brokers, modelled on aiokafka's."""

from __future__ import annotations

import asyncio
from zlib import crc32

from aiokafka.errors import (
    CommitFailedError,
    ConcurrentTransactions,
    IllegalGenerationError,
    InvalidProducerEpoch,
    KafkaError,
    ProducerFenced,
    UnknownMemberIdError,
)
from aiokafka.structs import OffsetAndMetadata

from knowledgepulse_worker.records.record import NO_TIMESTAMP, OutputRecord
from simulation.clients import BACKOFF, Connection
from simulation.transactions import GROUP


class _Batch(list):
    """A batch of a partition; ``sequence`` is the number of records sent before it."""

    def __init__(self, sequence):
        super().__init__()
        self.sequence = sequence
        self.deliveries = []


class SimProducer:
    """The methods of ``AIOKafkaProducer`` that the worker uses, with a transactional id; it retries forever.

    A transaction's requests run in separate tasks, which continue even if the caller is cancelled.
    """

    def __init__(self, cluster, host, moment, *, transactional_id, transaction_timeout_ms, writer="", **_):
        self._cluster = cluster
        self._connection = Connection(cluster, host, f"producer {transactional_id}")
        self._moment = moment
        self._id = transactional_id
        self._timeout = transaction_timeout_ms / 1000
        self._writer = writer
        self._loop = cluster.loop
        self._epoch = -1
        self._error = None
        self._added = set()
        self._written = {}
        self._batches = {}
        self._sending = None
        self._task = None

    async def start(self):
        transactions = self._cluster.transactions
        self._epoch = await self._coordinate(transactions.begin, self._id, self._timeout)

    async def stop(self):
        """Send the remaining records; an open transaction stays open."""
        for task in (self._sending, self._task):
            if task is not None:
                await asyncio.wait([task])

    def transaction(self):
        return self

    async def __aenter__(self):
        if self._error is not None:
            raise self._error
        return self

    async def __aexit__(self, kind, error, traceback):
        if kind is None:
            await self._in_task(self._end(commits=True))
        elif self._error is None:
            await self._in_task(self._end(commits=False))

    async def send(self, topic, value, *, key, partition, headers=()):
        if self._error is not None:
            raise self._error
        if partition is None:
            partition = crc32(key or b"") % len(self._cluster.topics[topic].logs)
        at = (topic, partition)
        batch = self._batches.get(at) or self._batches.setdefault(at, _Batch(self._written.get(at, 0)))
        batch.append(OutputRecord(topic, partition, NO_TIMESTAMP, key, value, tuple(headers)))
        batch.deliveries.append(delivery := self._loop.create_future())
        self._moment("output taken")
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_batches())
        return delivery

    async def send_group_offsets(self, offsets, group):
        assert group.group, "a group is named"
        places = {(tp.topic, tp.partition): OffsetAndMetadata(offset, "") for tp, offset in offsets.items()}
        await self._in_task(self._commit(places, group))

    async def _in_task(self, coroutine):
        self._task = asyncio.create_task(coroutine)
        await asyncio.shield(self._task)

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
            except KafkaError as error:
                await self._pause(error)
            else:
                return

    async def _end(self, *, commits):
        if self._sending is not None:
            await asyncio.wait([self._sending])
        if self._error is not None:
            raise self._error
        if self._added:
            self._moment("ending")
            await self._coordinate(self._cluster.transactions.end, self._id, self._epoch, commits)
            self._moment("ended")
        self._added = set()

    async def _add(self, places):
        if new := places - self._added:
            await self._coordinate(self._cluster.transactions.add, self._id, self._epoch, new)
            self._added |= new

    async def _send_batches(self):
        """Send all batches, first adding their partitions to the transaction."""
        await asyncio.sleep(0)
        while self._batches and self._error is None:
            batches, self._batches = self._batches, {}
            for at, batch in batches.items():
                self._written[at] = batch.sequence + len(batch)
            try:
                await self._add(set(batches))
            except KafkaError as error:
                _fail(batches, error)
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
        for broker, some in by_broker.items():
            try:
                results = await self._connection.ask(
                    broker,
                    lambda broker=broker, some=some: self._cluster.produce(
                        broker, some, self._writer, (self._id, self._epoch)
                    ),
                )
            except KafkaError as error:
                results = dict.fromkeys(some, error)
            for at, result in results.items():
                if isinstance(result, KafkaError) and result.retriable:
                    again[at] = batches[at]
                elif isinstance(result, KafkaError):
                    fenced = isinstance(result, InvalidProducerEpoch)
                    _fail({at: batches[at]}, ProducerFenced() if fenced else result)
                else:
                    for number, delivery in enumerate(batches[at].deliveries):
                        delivery.set_result(result + number)
        return again

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
            _fail(self._batches, self._error)
            raise self._error from error
        await asyncio.sleep(BACKOFF)


def _fail(batches, error):
    for batch in batches.values():
        for delivery in batch.deliveries:
            if not delivery.done():
                delivery.set_exception(error)
