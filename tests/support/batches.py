"""Build record batches byte by byte (format v2), including batches that no client library would write."""

from __future__ import annotations

import gzip
import struct
import time
from collections.abc import Callable, Sequence

import cramjam
from aiokafka import AIOKafkaProducer
from aiokafka.codec import lz4_encode, snappy_encode
from aiokafka.record.util import calc_crc32c

HEADER_BYTES = 61
NOW = time.time_ns() // 10**6
"""In milliseconds: a broker deletes at once what is older than its topic's retention."""
ENCODERS: dict[int, Callable[[bytes], bytes]] = {
    1: gzip.compress,
    2: snappy_encode,
    3: lz4_encode,
    4: lambda data: bytes(cramjam.zstd.compress(data)),
}
"""Compressors by Kafka's codec number."""

Record = tuple[int, bytes | None, bytes | None, Sequence[tuple[bytes, bytes | None]]]
"""Offset delta, key, value, and headers with names as bytes."""


def by_hand(
    records: Sequence[Record],
    codec: int = 0,
    *,
    base: int = 0,
    compressed: bytes | None = None,
    last_delta: int | None = None,
    timestamp: int = NOW,
    attributes: int = 0,
    producer: tuple[int, int] = (-1, -1),
) -> bytes:
    """Return a batch with these records, or with these compressed bytes in their place.

    ``producer`` has the producer's id and epoch.
    """
    if compressed is None:
        payload = b"".join(map(_record, records))
        compressed = ENCODERS[codec](payload) if codec else payload
    last = len(records) - 1 if last_delta is None else last_delta
    header = struct.pack(
        ">qiibIhiqqqhii",
        *(base, 0, 0, 2, 0, codec | attributes, last),
        *(timestamp, timestamp, *producer, -1, len(records)),
    )
    return sealed(header + compressed)


def sealed(data: bytes) -> bytes:
    """Return the batch with length and checksum corrected."""
    data = bytearray(data)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, calc_crc32c(bytes(data[21:])))
    return bytes(data)


def blanks(size: int) -> bytes:
    """Return one zstd-compressed record with this number of blanks as its value, never expanded in memory."""
    before = b"\0" + _varint(0) + _varint(0) + _sized(b"k") + _varint(size)
    compressor = cramjam.zstd.Compressor()
    compressor.compress(_varint(len(before) + size + 1) + before)
    chunk = b" " * 2**22
    for start in range(0, size, len(chunk)):
        compressor.compress(chunk[: size - start])
    compressor.compress(_varint(0))
    return bytes(compressor.finish())


async def send(
    producer: AIOKafkaProducer, topic: str, data: bytes, *, records: int, partition: int = 0
) -> int:
    """Produce a batch unchanged; return its first offset."""
    batch = producer.create_batch()
    for _ in range(records):  # so that the client expects as many offsets
        batch.append(key=b"", value=b"", timestamp=None)
    batch.close()
    batch._buffer = data
    delivery = await producer.send_batch(batch, topic, partition=partition)
    return (await delivery).offset


def _record(record: Record) -> bytes:
    delta, key, value, headers = record
    body = b"\0" + _varint(0) + _varint(delta) + _sized(key) + _sized(value) + _varint(len(headers))
    return _sized(body + b"".join(_sized(name) + _sized(content) for name, content in headers))


def _sized(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _varint(number: int) -> bytes:
    number = number << 1 if number >= 0 else (-number << 1) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
