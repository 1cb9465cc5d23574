"""A steady stream of real traces with unique ids."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from aiokafka import AIOKafkaProducer

# The tests' own producer survives every outage, so that the load is sent in full.
_PATIENCE_MS = 30 * 60 * 1000
_STOP_LIMIT = 10

Make = Callable[[int], tuple[bytes, bytes]]
"""Maps a record's number to its key and value."""


class Load:
    """Publish records at random times to the partitions in turn.

    Args:
        bootstrap_servers: the brokers' addresses for the tests.
        topic: the target topic.
        partitions: the topic's partition count.
        rate: returns the mean number of records per second from now on.
        make: creates the records.

    Attributes:
        sent: number of confirmed records.
        idle: whether it is paused without records in flight.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        rate: Callable[[], float],
        make: Make,
    ) -> None:
        self.sent = 0
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self._make = make
        self._number = 0
        self._pending = 0
        self._flows = asyncio.Event()
        self._flows.set()

    def pause(self) -> None:
        self._flows.clear()

    def resume(self) -> None:
        self._flows.set()

    @property
    def idle(self) -> bool:
        return not self._flows.is_set() and not self._pending

    async def run(self) -> None:
        """Publish until cancelled."""
        async with self._producing() as producer:
            while True:
                await self._flows.wait()
                delivery = await self._send(producer)
                delivery.add_done_callback(self._confirmed)
                await asyncio.sleep(random.expovariate(self._rate()))

    @asynccontextmanager
    async def _producing(self, **arguments: object) -> AsyncIterator[AIOKafkaProducer]:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap_servers,
            enable_idempotence=True,
            request_timeout_ms=_PATIENCE_MS,
            max_batch_size=262_144,
            **arguments,
        )
        try:
            await producer.start()
            yield producer
        finally:
            with suppress(TimeoutError):  # the brokers may be gone
                async with asyncio.timeout(_STOP_LIMIT):
                    await producer.stop()

    async def _send(self, producer: AIOKafkaProducer) -> asyncio.Future[object]:
        """Pass the next record to the client."""
        key, value = self._make(self._number)
        partition = self._number % self._partitions
        self._number += 1
        self._pending += 1
        return await producer.send(self._topic, value, key=key, partition=partition)

    def _confirmed(self, delivery: asyncio.Future[object]) -> None:
        self._pending -= 1
        # An unconfirmed record may or may not be in the log, which is authoritative.
        if not delivery.cancelled() and delivery.exception() is None:
            self.sent += 1


class TransactionalLoad(Load):
    """Publish in transactions, and abort every other one.

    Attributes:
        sent: number of committed records.
        aborted: number of aborted records.
    """

    aborted = 0

    async def run(self) -> None:
        """Publish until cancelled."""
        async with self._producing(transactional_id=self._topic) as producer:
            while True:
                await self._flows.wait()
                for commits in (True, False):
                    await producer.begin_transaction()
                    size = random.randint(1, 2 * self._partitions)
                    for delivery in [await self._send(producer) for _ in range(size)]:
                        await delivery
                    if commits:
                        await producer.commit_transaction()
                        self.sent += size
                    else:
                        await producer.abort_transaction()
                        self.aborted += size
                    self._pending -= size
                    await asyncio.sleep(random.expovariate(self._rate() / size))


def traces(lines: Sequence[bytes], malformed_every: int = 0) -> Make:
    """Return a function that creates records: real traces with unique ids.

    Args:
        lines: the real traces.
        malformed_every: every n-th record is malformed; 0 means none.
    """
    ids = [json.loads(line)["id"].encode() for line in lines]
    rng = random.Random(1)

    def make(number: int) -> tuple[bytes, bytes]:
        line, old = lines[number % len(lines)], ids[number % len(lines)]
        new = b"kp:trace:chaos-%d" % number
        value = line.replace(old, new)
        if malformed_every and number % malformed_every == 0:
            value = _broken(value, rng)
        return new, value

    return make


def _broken(value: bytes, rng: random.Random) -> bytes:
    """Corrupt a trace like a defective producer, in a random way."""
    return rng.choice(
        [
            value[: len(value) // 2],
            b"",
            b"[" + value + b"]",
            value.replace(b'"ReasoningTrace"', b'"Trace"'),
            value.replace(b'"steps"', b'"stops"'),
            value.replace(b'"confidence"', b'"confidence": 2, "c"'),
            rng.randbytes(200),
            value[:-1] + b', "x": NaN}',
            value.replace(b"e", b"\xff", 1),
        ]
    )
