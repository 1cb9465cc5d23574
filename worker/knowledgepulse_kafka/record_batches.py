"""Decode fetched record batches so that no batch that a broker accepts can stop a partition.

The client's own parser raises at the first batch that it cannot decode, inflates without a limit and accepts
only UTF-8 header names. With :func:`decode_within`, a consumer uses this module's parser instead:

- A compressed batch is inflated up to a limit.
- A batch that cannot be decoded, or is too large, yields one placeholder for each of its offsets.
- Header names that are not UTF-8 keep their bytes (PEP 383, ``surrogateescape``).
- A control batch that compaction has emptied, or of a type that is unknown, is skipped (KAFKA-7467).

Ordinary batches still go through the client's compiled parser. A wrong checksum remains an error: the batch
was damaged after a broker accepted it, and a retry or another replica may deliver it intact.

Record format: https://kafka.apache.org/documentation/#messageformat
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import sha256
from struct import Struct
from typing import Any, Literal, NamedTuple

import cramjam
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import PartitionRecords as ClientPartitionRecords
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import ConsumerRecord

from knowledgepulse_kafka.checksums import checksum
from knowledgepulse_kafka.private_parts import FETCH, FETCHER, RECORDS_ITERATOR
from knowledgepulse_kafka.records import Fault

MAX_RECORDS = 100_000
"""Maximum records decoded from a batch; more would block the event loop for seconds."""
MAX_HEADERS = 200_000
"""Maximum headers decoded from a batch; a header may take only 2 bytes there, but about 100 in memory."""
MAX_COMPILED_BYTES = 1_048_576
"""The size of the largest inflated batch left to the client's parser, which does not limit headers."""
MAX_POLL_RECORDS = 10_000
"""Maximum records per poll: far more than most fetches hold, yet little memory."""
FETCH_BYTES_INFLATED = 4_194_304
"""Inflated bytes of a partition's fetch after which the remaining records are left to the next fetch."""
RECORD_BYTES = 512
"""Bytes of memory that a record takes in addition to its key and value."""

_CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_CODEC_BITS = 0x07
# Format v2: base offset, length, leader epoch, magic, checksum, attributes, last offset delta, first and
# maximum timestamp, producer id and epoch, base sequence, record count.
_HEADER = Struct(">qiibIhiqqqhii")
_LENGTH = Struct(">i")
# The key of a control record: version and type. Brokers raise the version, but keep the types' numbers.
_CONTROL_KEY = Struct(">hh")
_UNKNOWN_CONTROL = _CONTROL_KEY.pack(0, -1)
_LENGTH_OFFSET = 8
_EPOCH_OFFSET = 12
_FRAME = _LENGTH_OFFSET + _LENGTH.size
_CRC = Struct(">I")
_CRC_OFFSET = 17
_ATTRIBUTES_OFFSET = 21
# Bytes before the key in formats v0 and v1: v1 adds a timestamp.
_LEGACY_HEADER = {0: 18, 1: 26}
_LEGACY_ATTRIBUTES_OFFSET = 17
_MAGIC_OFFSET = 16
# The first bytes of snappy-java's framing, and the length of its header.
_SNAPPY_JAVA, _SNAPPY_JAVA_HEADER = b"\x82SNAPPY\0", 16
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_MIN_BUFFER = 262_144
# cramjam's message when the output buffer is too small.
_BUFFER_FULL = "failed to write whole buffer"


class Record(NamedTuple):
    """A record with the attributes of the client's records; see :func:`fault_of` for ``checksum``."""

    offset: int
    timestamp: int
    timestamp_type: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    checksum: Fault | None = None


def fault_of(record: ConsumerRecord) -> Fault | None:
    """Return why a record is only a placeholder; None if it could be read.

    The client copies only the attributes that it knows. The fault is carried in ``checksum``, which it does
    not use, since records have no checksum as of format v2.
    """
    return record.checksum if isinstance(record.checksum, Fault) else None


def epoch_of(record: ConsumerRecord) -> int:
    """Return the epoch of the leader that wrote a record; -1 if it is unknown."""
    return getattr(record, "leader_epoch", -1)


def is_of_transaction(record: ConsumerRecord) -> bool:
    """Return whether a record was written in a transaction."""
    return bool(getattr(record, "is_transactional", False))


class _TooLargeError(Exception):
    """A batch exceeds a limit, named in the message."""


class _MalformedError(Exception):
    """A batch violates its format."""


def decode_within(consumer: AIOKafkaConsumer, batch_bytes: int) -> None:
    """Let a consumer that has started, and fetches nothing yet, decode with this module's parser.

    Other consumers in the process keep the client's parser.

    Args:
        consumer: the consumer.
        batch_bytes: the largest batch to decode, inflated.
    """
    FETCH.replace_globals(
        FETCHER.of(consumer),
        MemoryRecords=partial(Batches, batch_bytes=batch_bytes),
        PartitionRecords=PartitionRecords,
    )


class PartitionRecords(ClientPartitionRecords):  # type: ignore[misc]  # aiokafka is untyped
    """The client's iterator over a fetch, which shares its position with the batches.

    It ends once it has yielded :data:`FETCH_BYTES_INFLATED`, even within a batch; the next fetch returns the
    remaining records. Otherwise every partition could hold a batch of ``batch_bytes`` and its records.
    """

    def __init__(self, tp: Any, records: Batches, *rest: Any) -> None:
        super().__init__(tp, records, *rest)
        self._left = FETCH_BYTES_INFLATED
        self._fetched = records
        records.position = lambda: self.next_fetch_offset

    def __next__(self) -> Any:
        if self._left <= 0:
            RECORDS_ITERATOR.replace(self, None)
            raise StopIteration
        record = super().__next__()
        self._left -= RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
        record.leader_epoch = self._fetched.leader_epoch
        record.is_transactional = self._fetched.is_transactional
        return record


class Batches:
    """The batches in a fetch of a partition, which replace the client's ``MemoryRecords``.

    Args:
        data: the broker's response.
        batch_bytes: the largest batch to decode, inflated.

    Attributes:
        position: returns the next offset to be yielded.
        leader_epoch: the leader epoch of the last batch; -1 in formats before v2.
        is_transactional: whether the last batch was written in a transaction.
    """

    def __init__(self, data: bytes, batch_bytes: int) -> None:
        self.position: Callable[[], int] = lambda: 0
        self.batch_bytes = batch_bytes
        self.inflated = 0
        self.leader_epoch = -1
        self.is_transactional = False
        self._bytes = data
        self._data = memoryview(data)
        self._next = 0
        self._client = MemoryRecords(data)

    def size_in_bytes(self) -> int:
        """Return the size of the fetch."""
        return len(self._data)

    def has_next(self) -> bool:
        """Return whether this fetch yields another batch."""
        return self.inflated < FETCH_BYTES_INFLATED and bool(self._client.has_next())

    def next_batch(self) -> Any:
        """Return the next batch."""
        batch = self._client.next_batch()
        start = self._next
        self._next += _FRAME + _LENGTH.unpack_from(self._data, start + _LENGTH_OFFSET)[0]
        data = self._data[start : self._next]
        is_default = isinstance(batch, DefaultRecordBatch)
        self.leader_epoch = _LENGTH.unpack_from(data, _EPOCH_OFFSET)[0] if is_default else -1
        self.is_transactional = batch.is_transactional
        if batch.is_control_batch:
            return _ControlBatch(batch)
        if not is_default:
            return _LegacyBatch(batch, data, self)
        read = _Batch(batch, data, self)
        read.validate_crc = partial(self._is_intact, start, start + len(data))
        return read

    def _is_intact(self, start: int, end: int) -> bool:
        expected: int = _CRC.unpack_from(self._data, start + _CRC_OFFSET)[0]
        return checksum(self._bytes, start + _ATTRIBUTES_OFFSET, end) == expected


class _ControlBatch:
    """A batch with a transaction marker or another control record, which only brokers write.

    Compaction keeps the batch without its record if it is the last one of a producer (KAFKA-7467). As in the
    Java client, a batch from which no abort marker can be read is none.

    Args:
        client: the client's batch.
    """

    is_control_batch = True

    def __init__(self, client: Any) -> None:
        self._client = client
        self.validate_crc = client.validate_crc
        self.producer_id = client.producer_id
        self.is_transactional = client.is_transactional
        self.base_offset: int = client.base_offset
        self.next_offset: int = client.next_offset

    def __next__(self) -> Record:
        """Return a control record that the client can parse."""
        try:
            _version, control_type = _CONTROL_KEY.unpack_from(next(self._client).key)
            key = _CONTROL_KEY.pack(0, control_type)
        except Exception:  # noqa: BLE001 - parsers raise many kinds; all mean that there is no such record
            key = _UNKNOWN_CONTROL
        return Record(self.base_offset, -1, None, key, None, [])


class _AnyBatch:
    """A batch that yields the records that can be decoded and placeholders for all others.

    Args:
        client: the client's batch.
        data: the batch's bytes.
        fetch: the fetch that contains it.
    """

    def __init__(self, client: Any, data: memoryview, fetch: Batches) -> None:
        self._client = client
        self._data = data
        self._fetch = fetch
        self.validate_crc = client.validate_crc
        self.producer_id = client.producer_id
        self.is_transactional = client.is_transactional
        self.is_control_batch = False
        self.next_offset: int = client.next_offset

    def __iter__(self) -> Iterator[Any]:
        """Yield a record or a placeholder for every offset; never raise because of a batch's contents."""
        try:
            yield from self._records()
        except MemoryError:
            raise
        except _TooLargeError as error:
            yield from self._placeholders("too_large", str(error))
        except Exception as error:  # noqa: BLE001 - parsers raise many kinds; their texts may quote a record
            problem = str(error) if isinstance(error, _MalformedError) else type(error).__name__
            yield from self._placeholders("undecodable", problem)

    def _records(self) -> Iterator[Any]:
        raise NotImplementedError

    def _placeholders(self, reason: Literal["undecodable", "too_large"], problem: str) -> Iterator[Record]:
        """Yield a placeholder for each remaining offset."""
        codec, last = self._codec(), self.next_offset - 1
        name = _CODECS.get(codec, f"codec {codec}") if codec else "not compressed"
        digest = sha256(self._data).hexdigest()
        batch = f"the batch up to offset {last} ({name}, {len(self._data)} bytes, sha256 {digest})"
        fault = Fault(reason, f"{batch}: {problem}")
        timestamp, timestamp_type = self._time()
        for offset in range(self._next_to_yield(), self.next_offset):
            yield Record(offset, timestamp, timestamp_type, None, None, [], fault)

    def _next_to_yield(self) -> int:
        return self._fetch.position()

    def _time(self) -> tuple[int, int | None]:
        return -1, None

    def _codec(self) -> int:
        raise NotImplementedError


class _Batch(_AnyBatch):
    """A batch of record format v2."""

    def __init__(self, client: Any, data: memoryview, fetch: Batches) -> None:
        super().__init__(client, data, fetch)
        self.base_offset: int = client.base_offset
        self._count: int = _HEADER.unpack_from(data)[-1]
        # False if the broker has compacted the batch.
        self._has_all_offsets = self._count == self.next_offset - self.base_offset

    def _records(self) -> Iterator[Any]:
        if self._count > MAX_RECORDS:
            raise _TooLargeError(f"it holds {self._count} records; the limit is {MAX_RECORDS}")
        client, data = self._client, self._data
        if self._codec():
            data = self._inflated()
            client = DefaultRecordBatch(data)
        if len(data) <= MAX_COMPILED_BYTES:
            try:
                yield from self._in_order(client)
            except MemoryError:
                raise
            except Exception:  # noqa: BLE001, S110 - the parser below reports the problem
                pass
            else:
                return
        yield from self._in_order(_parse(data, self._next_to_yield()))

    def _in_order(self, records: Iterable[Any]) -> Iterator[Any]:
        """Yield records after checking that their offsets fit the batch, since brokers do not check that."""
        has_all, expected, end = self._has_all_offsets, self.base_offset, self.next_offset
        for record in records:
            offset = record.offset
            if not expected <= offset < end or (has_all and offset != expected):
                raise _MalformedError("its records are not in the order of their offsets")
            expected = offset + 1
            yield record

    def _inflated(self) -> memoryview:
        """Return the batch as if it had not been compressed; its checksum is not updated."""
        data = inflate(self._codec(), self._data[_HEADER.size :], self._fetch.batch_bytes, _HEADER.size)
        self._fetch.inflated += len(data)
        data[: _HEADER.size] = self._data[: _HEADER.size]
        data[_ATTRIBUTES_OFFSET + 1] &= ~_CODEC_BITS
        _LENGTH.pack_into(data, _LENGTH_OFFSET, len(data) - _FRAME)
        return memoryview(data)

    def _next_to_yield(self) -> int:
        return max(self.base_offset, self._fetch.position())

    def _time(self) -> tuple[int, int | None]:
        return self._client.max_timestamp, self._client.timestamp_type

    def _codec(self) -> int:
        return int(self._client.compression_type)


class _LegacyBatch(_AnyBatch):
    """A message set in format v0 or v1, which brokers before 4.0 still accept."""

    def _records(self) -> Iterator[Any]:
        if codec := self._codec():
            key = _LEGACY_HEADER[self._data[_MAGIC_OFFSET]]
            value = key + _LENGTH.size + max(0, _LENGTH.unpack_from(self._data, key)[0])
            compressed = self._data[value + _LENGTH.size :]
            # The client inflates it again, which is acceptable because such batches are rare.
            self._fetch.inflated += len(inflate(codec, compressed, self._fetch.batch_bytes))
        yield from self._client

    def _codec(self) -> int:
        return self._data[_LEGACY_ATTRIBUTES_OFFSET] & _CODEC_BITS


def inflate(codec: int, data: memoryview, limit: int, before: int = 0) -> bytearray:
    """Decompress a batch.

    Args:
        codec: Kafka's codec number.
        data: the compressed bytes.
        limit: the largest result in bytes; memory use is a small multiple of it.
        before: the number of zero bytes to put before the result.

    Raises:
        Exception: the bytes are not in this codec's format, or inflate beyond the limit.
    """
    if codec == 1:
        return _gunzip(data, limit, before)
    if codec == 2:
        return _unsnap(data, limit, before)
    if codec == 3:
        return _decompress(cramjam.lz4.decompress_into, data, limit, before)
    if codec == 4:
        return _decompress(cramjam.zstd.decompress_into, data, limit, before)
    raise _MalformedError(f"unknown codec {codec}")


def _too_large(limit: int) -> _TooLargeError:
    return _TooLargeError(f"its inflated size exceeds batch_bytes ({limit})")


def _decompress(
    decompress_into: Callable[[Any, Any], int], data: memoryview, limit: int, before: int
) -> bytearray:
    """Decompress into buffers of growing size, up to the limit."""
    size = min(limit, max(_MIN_BUFFER, 8 * len(data)))
    while True:
        buffer = bytearray(before + size)
        try:
            with memoryview(buffer) as whole, whole[before:] as free:
                length = decompress_into(data, free)
        except cramjam.DecompressionError as error:
            if _BUFFER_FULL not in str(error):
                raise
            if size == limit:
                raise _too_large(limit) from None
            size = min(limit, 4 * size)
        else:
            del buffer[before + length :]
            return buffer


def _gunzip(data: memoryview, limit: int, before: int) -> bytearray:
    inflated = bytearray(before)
    rest = bytes(data)
    while rest.startswith(_GZIP):  # a stream may have several members; Java ignores trailing bytes
        member = zlib.decompressobj(_GZIP_WINDOW)
        inflated += member.decompress(rest, limit + 1 - (len(inflated) - before))
        if len(inflated) - before > limit:
            raise _too_large(limit)
        if not member.eof:
            raise _MalformedError("its gzip stream is truncated")
        rest = member.unused_data
    if len(inflated) == before and not data[:2] == _GZIP:
        raise _MalformedError("it is not a gzip stream")
    return inflated


def _unsnap(data: memoryview, limit: int, before: int) -> bytearray:
    blocks = [data]
    if data[: len(_SNAPPY_JAVA)] == _SNAPPY_JAVA:
        blocks, start = [], _SNAPPY_JAVA_HEADER
        while start < len(data):
            (length,) = _LENGTH.unpack_from(data, start)
            start += _LENGTH.size
            if not 0 <= length <= len(data) - start:
                raise _MalformedError("a snappy block is truncated")
            blocks.append(data[start : start + length])
            start += length
    lengths = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    if sum(lengths) > limit:
        raise _too_large(limit)
    inflated = bytearray(before + sum(lengths))
    start = before
    with memoryview(inflated) as whole:
        for block, length in zip(blocks, lengths, strict=True):
            with whole[start : start + length] as free:
                cramjam.snappy.decompress_raw_into(block, free)
            start += length
    return inflated


def _parse(data: memoryview, first: int) -> Iterator[Record]:
    """Yield the records of an inflated batch, whose header names may be any bytes.

    Records before the offset ``first`` are not wanted, so only their offset is read.
    """
    header = _HEADER.unpack_from(data)
    base, attributes, count = header[0], header[5], header[12]
    first_timestamp, max_timestamp = header[7], header[8]
    timestamp_type = attributes >> 3 & 1
    reader = _Reader(data, _HEADER.size)
    headers_left = MAX_HEADERS
    for _ in range(count):
        length = reader.number()
        end = reader.position + length
        if length < 0:
            raise _MalformedError("a record's length is negative")
        reader.number()  # attributes; none is defined
        delta = reader.number()
        offset = base + reader.number()
        if offset < first:
            yield Record(offset, -1, timestamp_type, None, None, [])
            reader.position = end
            continue
        key, value = reader.nullable(), reader.nullable()
        header_count = reader.number()
        headers_left -= header_count
        if header_count < 0:
            raise _MalformedError("a record's header count is negative")
        if headers_left < 0:
            raise _TooLargeError(f"it holds more than {MAX_HEADERS} headers")
        headers = [(reader.name(), reader.nullable()) for _ in range(header_count)]
        if reader.position != end:
            raise _MalformedError("a record's length is wrong")
        timestamp = max_timestamp if timestamp_type else _int64(first_timestamp + delta)
        yield Record(offset, timestamp, timestamp_type, key, value, headers)


class _Reader:
    """Reads the fields of records one after another; raises at the end of the data."""

    def __init__(self, data: memoryview, position: int) -> None:
        self.position = position
        self._data = data

    def number(self) -> int:
        """Read a zigzag-encoded variable-length integer."""
        shift = result = 0
        while True:
            byte = self._data[self.position]
            self.position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (result >> 1) ^ -(result & 1)
            shift += 7
            if shift > 63:
                raise _MalformedError("a number is too long")

    def nullable(self) -> bytes | None:
        length = self.number()
        return None if length < 0 else self._take(length)

    def name(self) -> str:
        length = self.number()
        if length < 0:
            raise _MalformedError("a header has no name")
        return self._take(length).decode("utf-8", "surrogateescape")

    def _take(self, length: int) -> bytes:
        if length > len(self._data) - self.position:
            raise _MalformedError("a record is truncated")
        taken = bytes(self._data[self.position : self.position + length])
        self.position += length
        return taken


def _int64(number: int) -> int:
    """Wrap around to 64 bits, as the client does."""
    return (number + 2**63) % 2**64 - 2**63
