"""Record batches at random, as many clients write them and as none should, through a real broker."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from confluent_kafka import Producer

from chaos.hostile import FIRST_NUMBER, YEAR_9999_MS, YEAR_MS
from chaos.trial import PARTITIONS, Trial
from support import batches
from support.batches import Record

LARGEST_BATCH = 50
LARGEST_VALUE = 20_000
"""Bytes of a trace: larger ones only take longer."""
MOST_WAITING = 4_000
"""Records that are published ahead of the workers."""

_CODECS = (None, "gzip", "snappy", "lz4", "zstd")
_NAMES = (
    *("traceparent", "", "\N{SNOWMAN}", "x" * 300),
    *("kp-source", "kp-score", "kp-policy", "kp-reason", "kp-timestamp", "kp-attempt"),
    *("__streams.errors.exception", "__streams.errors.offset"),
)
_BYTE_NAMES = (b"\xff", "\N{SNOWMAN}".encode("utf-16"), b"\xed\xa0\x80")
_CONTROL, _TRANSACTIONAL = 0x20, 0x10
_TOKENS = [
    *(
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"null",
        b"true",
        b"NaN",
        b"-0",
        b"1e999",
        b"Infinity",
    ),
    *(
        rb"\ud800",
        rb"\udc00\ud800",
        rb"\u0000",
        rb"\uD83D\uDE00",
        rb"\\ud800",
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
    ),
    *(b'"metadata":', b'"quality_score":0.5,', b'"quality_score":null,', b'"steps":[],', b'"@type":"X",'),
    *(b"\xef\xbb\xbf", b"\x00", b" ", b"\n", b"9" * 50, b"[" * 300, b"]" * 300, b'{"a":' * 250, b"1" * 5000),
]
_BY_BROKER = {"message.timestamp.type": "LogAppendTime"}


async def publish(trial: Trial, doses: Sequence[int]) -> None:
    """Publish records of every kind; halfway, the raw topic switches to the broker's time."""
    await trial.fleet.start(2)
    trial.orders.at_once()
    await trial.shared()
    raw = trial.stream.settings.topics.raw
    async with _Clients.connected(trial) as clients:
        for count in doses:
            trial.notes["refused by the broker"] = ", ".join(await clients.offer_what_is_refused())
            config = await trial.stream.topic_config(raw)
            await clients.publish(count // 2)
            await trial.stream.configure_topic(raw, config | _BY_BROKER)
            await clients.publish(count - count // 2)
            await trial.stream.configure_topic(raw, config)
    trial.notes["aborted"] = clients.aborted


class _Clients:
    """Producers of several libraries and kinds.

    Attributes:
        aborted: records of transactions that were aborted.
    """

    def __init__(
        self,
        trial: Trial,
        plain: AIOKafkaProducer,
        idempotent: AIOKafkaProducer,
        transactional: Sequence[AIOKafkaProducer],
    ) -> None:
        self.aborted = 0
        self._trial = trial
        self._topic = trial.stream.settings.topics.raw
        self._plain = plain
        self._idempotent = idempotent
        self._transactional = transactional
        self._librdkafka = [
            Producer(
                {
                    "bootstrap.servers": trial.brokers.direct,
                    "enable.idempotence": True,
                    "compression.codec": codec or "none",
                    "linger.ms": 2,
                }
            )
            for codec in _CODECS
        ]
        self._random = random.Random(1)
        self._numbers = itertools.count(FIRST_NUMBER)

    @classmethod
    @asynccontextmanager
    async def connected(cls, trial: Trial) -> AsyncIterator[_Clients]:
        def producer(**arguments: object) -> AIOKafkaProducer:
            return AIOKafkaProducer(bootstrap_servers=trial.brokers.direct, **arguments)

        name = trial.stream.settings.topics.raw
        transactional = [
            producer(transactional_id=f"{name}-{codec}", compression_type=codec) for codec in _CODECS
        ]
        async with producer() as plain, producer(enable_idempotence=True, linger_ms=2) as idempotent:
            async with asyncio.TaskGroup() as group:
                for one in transactional:
                    group.create_task(one.start())
            try:
                yield cls(trial, plain, idempotent, transactional)
            finally:
                for one in transactional:
                    await one.stop()

    async def publish(self, count: int) -> None:
        """Publish records until this many are expected as outputs."""
        load, witness = self._trial.load, self._trial.witness
        end = load.sent + count

        async def keep_on(way: Callable[[], Awaitable[int]]) -> None:
            while load.sent < end:
                published = await way()
                load.sent += published
                await self._trial.until(
                    lambda: len(witness.missing) < MOST_WAITING, "the workers do not keep up"
                )

        async with asyncio.TaskGroup() as group:
            for way in (self._by_hand, self._in_transaction, self._idempotently, self._by_librdkafka):
                group.create_task(keep_on(way))

    async def offer_what_is_refused(self) -> list[str]:
        """Offer what only a broker may write, or what none reads any more; return the names."""
        offered = dict(_refused(self._some_trace()[1]))
        for what, data in offered.items():
            try:
                await batches.send(self._plain, self._topic, data, records=1)
            except KafkaError:
                continue
            raise AssertionError(f"the broker takes {what}")
        return list(offered)

    async def _by_hand(self) -> int:
        records = [
            (delta, self._key(), self._value(), self._headers(byte_names=True))
            for delta in range(self._size())
        ]
        data = batches.by_hand(
            records,
            self._random.randrange(len(_CODECS)),
            timestamp=self._random.choice(
                [_now(), _now(), _now() - YEAR_MS, YEAR_9999_MS, 2**63 - 2, 0, -2, -YEAR_MS]
            ),
        )
        partition = self._random.randrange(PARTITIONS)
        await batches.send(self._plain, self._topic, data, records=len(records), partition=partition)
        return len(records)

    async def _in_transaction(self) -> int:
        producer = self._random.choice(self._transactional)
        commits = self._random.random() < 0.5
        await producer.begin_transaction()
        size = await self._send(producer)
        if commits:
            await producer.commit_transaction()
            return size
        await producer.abort_transaction()
        self.aborted += size
        return 0

    async def _idempotently(self) -> int:
        return await self._send(self._idempotent)

    async def _send(self, producer: AIOKafkaProducer) -> int:
        """Send records over the partitions, and wait for them."""
        deliveries = [
            await producer.send(
                self._topic,
                self._value() or b"",
                key=self._key(),
                partition=self._random.randrange(PARTITIONS),
                timestamp_ms=_now() - self._random.choice([0, YEAR_MS]),
                headers=self._headers(),
            )
            for _ in range(self._size())
        ]
        await asyncio.gather(*deliveries)
        return len(deliveries)

    async def _by_librdkafka(self) -> int:
        producer, size = self._random.choice(self._librdkafka), self._size()
        for _ in range(size):
            partition = self._random.randrange(PARTITIONS)
            # The library takes no header without a name.
            headers = [header for header in self._headers() if header[0]]
            producer.produce(self._topic, self._value(), self._key(), partition, headers=headers)
        left = await asyncio.to_thread(producer.flush, 60)
        assert left == 0, f"librdkafka could not send {left} records"
        return size

    def _size(self) -> int:
        return self._random.randint(1, LARGEST_BATCH)

    def _key(self) -> bytes | None:
        length = self._random.choice([0, 8, 8, 8, 100, 2000])
        return self._random.choice([None, self._random.randbytes(length)])

    def _value(self) -> bytes | None:
        _, trace = self._some_trace()
        kind = self._random.randrange(20)
        if kind < 14:
            return trace
        if kind < 18:
            return _damaged(trace, self._random)
        return self._random.choice([None, b"", b"{}", b"[]", self._random.randbytes(50)])

    def _some_trace(self) -> tuple[bytes, bytes]:
        while True:
            key, value = self._trial.make(next(self._numbers))
            if len(value) <= LARGEST_VALUE:
                return key, value

    def _headers(self, *, byte_names: bool = False) -> list:
        names: list[str | bytes] = [name.encode() for name in _NAMES] if byte_names else list(_NAMES)
        if byte_names and self._random.random() < 0.05:
            names = list(_BYTE_NAMES)
        count = self._random.choice([0, 0, 1, 2, 5])
        values = (None, b"", b"raw/0/7", self._random.randbytes(20))
        return [(self._random.choice(names), self._random.choice(values)) for _ in range(count)]


def _damaged(line: bytes, rng: random.Random) -> bytes:
    """Return a real trace with one to three kinds of damage."""
    value = bytearray(line)
    for _ in range(rng.randint(1, 3)):
        place, length = rng.randrange(len(value) + 1), rng.choice((1, 1, 2, 8, 64))
        match rng.randrange(6):
            case 0:
                value[place : place + length] = rng.randbytes(length)
            case 1:
                del value[place : place + length]
            case 2:
                value[place:place] = rng.choice(_TOKENS)
            case 3:
                value[place : place + length] = rng.choice(_TOKENS)
            case 4:
                source = rng.randrange(len(value) + 1)
                value[place:place] = value[source : source + length]
            case _:
                del value[place:]
    return bytes(value)


def _refused(value: bytes) -> Iterator[tuple[str, bytes]]:
    for magic in (0, 1):
        builder = LegacyRecordBatchBuilder(magic, 0, 2**20)
        builder.append(0, timestamp=0, key=b"k", value=value)
        yield f"format v{magic}", bytes(builder.build())
    record: Record = (0, b"k", value, [])
    yield "an empty batch", batches.by_hand([])
    yield "a control batch", batches.by_hand([record], attributes=_CONTROL | _TRANSACTIONAL)
    yield "a transaction of nobody's", batches.by_hand([record], attributes=_TRANSACTIONAL)
    yield "an unknown codec", batches.by_hand([record], 5, compressed=b"?")
    whole = batches.by_hand([record])
    yield "a wrong checksum", whole[:-1] + bytes([whole[-1] ^ 1])


def _now() -> int:
    return time.time_ns() // 1_000_000
