"""A publisher on simulated brokers, modelled on aiokafka's producer."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from zlib import crc32

from aiokafka.errors import (
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    RequestTimedOutError,
)

from knowledgepulse_worker.errors import DeliveryError, TimestampError, TooLargeError
from knowledgepulse_worker.kafka.output_publisher import BATCH_BYTES
from knowledgepulse_worker.records.record import NO_TIMESTAMP, OutputRecord
from simulation.clients import BACKOFF, Connection

_REFUSALS = {MessageSizeTooLargeError: TooLargeError, InvalidTimestampError: TimestampError}


@dataclass(eq=False)
class _Batch:
    since: float
    records: list[OutputRecord] = field(default_factory=list)
    deliveries: list[asyncio.Future] = field(default_factory=list)
    bytes: int = 0
    is_closed: bool = False
    is_sent: bool = False


class SimPublisher:
    """Implements :class:`~knowledgepulse_worker.records.publisher.Publisher`, as aiokafka's producer does."""

    def __init__(
        self, cluster, host, lease, timeout, taken=lambda _: None, writer="", batch_bytes=BATCH_BYTES
    ):
        self._connection = Connection(cluster, host, "producer", timeout)
        self._cluster = cluster
        self._lease = lease
        self._timeout = timeout
        self._taken = taken
        self._batch_bytes = batch_bytes
        self._writer = writer
        self._loop = cluster.loop
        self._queues = {}
        self._muted = set()
        self._busy = set()
        self._has_failed = False
        self._due = None
        self._tasks = set()

    async def start(self):
        """Connect to nothing."""

    async def stop(self):
        await self.flush()

    async def send(self, record):
        await self._lease.hold()
        return self._add(record, alone=False)

    async def send_alone(self, record):
        try:
            return await self._confirmed_alone(record)
        except TimestampError:
            if record.timestamp_ms != NO_TIMESTAMP:
                raise
        return await self._confirmed_alone(record)

    async def _confirmed_alone(self, record):
        await self._lease.hold()
        return await self._add(record, alone=True)

    async def flush(self):
        while waiting := [
            one for queue in self._queues.values() for batch in queue for one in batch.deliveries
        ]:
            await asyncio.wait([asyncio.shield(one) for one in waiting])
            await asyncio.sleep(0)

    def _add(self, record, *, alone):
        self._taken(record)
        partition = record.partition
        if partition is None:
            topic = self._cluster.topics.get(record.topic)
            partition = crc32(record.key or b"") % len(topic.logs) if topic else 0
        queue = self._queues.setdefault((record.topic, partition), deque())
        size = len(record.key or b"") + len(record.value or b"")
        batch = queue[-1] if queue else None
        full = batch is None or batch.is_closed or batch.bytes + size > self._batch_bytes
        if full or alone:
            if batch is not None:
                batch.is_closed = True
            batch = _Batch(self._loop.time())
            queue.append(batch)
        batch.is_closed = alone
        batch.records.append(record)
        batch.bytes += size
        inner = self._loop.create_future()
        batch.deliveries.append(inner)
        if self._has_failed:
            self._send_no_more()
        self._wake(0.005)
        return _result_of(inner)

    def _send_no_more(self):
        """Fail the records that were not sent yet; requests in flight continue."""
        self._has_failed = True
        for at, queue in self._queues.items():
            while queue and not queue[-1].is_sent:
                self._settle(at, queue.pop(), RequestTimedOutError())

    def _wake(self, delay):
        if self._due is None or self._due.cancelled():
            self._due = self._loop.call_later(delay, self._drain)

    def _drain(self):
        """Send the first batch of each partition to its leader, one request per broker at a time."""
        self._due = None
        if self._has_failed:
            return
        requests = {}
        for at in sorted(at for at, queue in self._queues.items() if queue and at not in self._muted):
            batch = self._queues[at][0]
            broker = self._connection.leader(at)
            if broker not in self._busy:
                batch.is_closed = batch.is_sent = True
                requests.setdefault(broker, {})[at] = batch
        for broker, batches in requests.items():
            self._busy.add(broker)
            self._muted.update(batches)
            task = asyncio.create_task(self._request(broker, batches))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _request(self, broker, batches):
        contents = {at: tuple(batch.records) for at, batch in batches.items()}
        try:
            results = await self._connection.ask(
                broker, lambda: self._cluster.produce(broker, contents, self._writer)
            )
        except KafkaError as error:
            results = dict.fromkeys(batches, error)
        again = {}
        for at, batch in batches.items():
            result = results[at]
            expired = self._loop.time() - batch.since > self._timeout
            if isinstance(result, KafkaError) and result.retriable and not expired:
                again[at] = batch
                continue
            self._queues[at].popleft()
            self._settle(at, batch, result)
        self._busy.discard(broker)
        if again:
            await asyncio.sleep(BACKOFF)
            self._connection.refresh()
            if self._has_failed:  # as `send_no_more`
                for at, batch in again.items():
                    self._queues[at].popleft()
                    self._settle(at, batch, RequestTimedOutError())
        self._muted.difference_update(batches)
        self._wake(0.0)

    def _settle(self, at, batch, result):
        failure = _REFUSALS.get(type(result), DeliveryError)
        for number, delivery in enumerate(batch.deliveries):
            if isinstance(result, int):
                delivery.set_result(result + number)
            else:
                delivery.set_exception(failure(f"{at[0]}, partition {at[1]}: {type(result).__name__}"))
        if not isinstance(result, int) and failure is DeliveryError and not self._has_failed:
            self._send_no_more()


def _result_of(inner):
    """Return a future that follows another: a caller that cancels it does not recall its record."""
    outer = asyncio.get_running_loop().create_future()

    def settle(_):
        if outer.done():
            inner.exception()
        elif error := inner.exception():
            outer.set_exception(error)
        else:
            outer.set_result(inner.result())

    inner.add_done_callback(settle)
    return outer
