"""Every offset of any batch yields a record or a placeholder, and memory is bounded."""

from __future__ import annotations

import gzip
import struct
import zlib
from contextlib import suppress
from types import SimpleNamespace

import cramjam
import pytest
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledgepulse_kafka import record_batches
from knowledgepulse_kafka.record_batches import (
    Batches,
    PartitionRecords,
    decode_within,
    epoch_of,
    fault_of,
    inflate,
)
from knowledgepulse_kafka.topic_reader import raw_record
from support.batches import ENCODERS, HEADER_BYTES, NOW, by_hand, sealed
from support.compaction import compacted_logs
from support.memory import traced

TP = TopicPartition("raw-traces", 0)
LIMIT = 1_048_576
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ClientPartitionRecords = record_batches.ClientPartitionRecords


def batch(records, codec=0, base=0):
    """A batch by the client's builder: of (key, value, headers, timestamp)."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 2**30)
    for delta, (key, value, headers, timestamp) in enumerate(records):
        builder.append(delta, timestamp, key, value, headers)
    return at(base, builder.build())


def at(base, data):
    """The batch as a broker stores it, at an offset."""
    return struct.pack(">q", base) + bytes(data)[8:]


def small(count=3, codec=0, base=0):
    return batch([(b"k", b"value %d" % n, [("h", b"1")], 1000 + n) for n in range(count)], codec, base)


def decode(data, *, offset=0, limit=LIMIT, aborted=()):
    """What the client's fetcher would hand out."""
    return list(PartitionRecords(TP, Batches(data, limit), list(aborted), offset, None, None, True, 1))


def client_decode(data):
    return list(ClientPartitionRecords(TP, MemoryRecords(data), [], 0, None, None, True, 1))


def faults(records):
    return [(record.offset, fault.reason) for record in records if (fault := fault_of(record)) is not None]


# --- batches that the client decodes, too

content = st.none() | st.binary(max_size=50)
any_records = st.lists(
    st.tuples(
        content,
        content,
        st.lists(st.tuples(st.text(max_size=10), content), max_size=4),
        st.integers(0, 2**62),
    ),
    min_size=1,
    max_size=8,
)


@given(st.lists(st.tuples(any_records, st.sampled_from(list(CODECS.values()))), max_size=4))
def test_batches_that_the_client_decodes_yield_the_same_records(fetch):
    data, base = b"", 0
    for records, codec in fetch:
        data += batch(records, codec, base)
        base += len(records)

    assert decode(data) == client_decode(data)


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)])
def test_message_sets_of_older_formats_are_decoded(magic, codec):
    builder = LegacyRecordBatchBuilder(magic, codec, 2**20)
    for offset in range(3):
        builder.append(offset, 1000, b"k", b"value")
    data = bytes(builder.build())

    records = decode(data)

    assert records == client_decode(data)
    assert [raw_record(record).timestamp_ms for record in records] == [-1 if magic == 0 else 1000] * len(
        records
    )


def test_an_undecodable_older_message_set_yields_placeholders_up_to_its_offset():
    builder = LegacyRecordBatchBuilder(1, 1, 2**20)
    for offset in range(3):
        builder.append(offset, 1000, b"k", b"value")
    data = bytearray(at(2, builder.build()))
    data[40:] = bytes(len(data) - 40)
    struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))

    assert faults(decode(bytes(data), offset=1)) == [(1, "undecodable"), (2, "undecodable")]


def test_a_record_has_the_leader_epoch_of_its_batch():
    batches = [small(2), small(1, base=2)]
    data = b"".join(
        written[:12] + struct.pack(">i", 7 + number) + written[16:] for number, written in enumerate(batches)
    )

    assert [epoch_of(record) for record in decode(data)] == [7, 7, 8]
    assert raw_record(decode(data)[-1]).leader_epoch == 8
    assert epoch_of(client_decode(data)[0]) == -1


@given(compacted_logs(), st.integers(1, 4), st.data())
def test_a_compacted_log_is_read_to_its_end_whatever_brokers_have_left_of_it(log, batches, data):
    """No worker could start once compaction had emptied the last transaction marker of a producer."""
    start = position = data.draw(st.integers(0, log.end - 1))
    read = []
    while position < log.end:
        fetched, aborted = log.fetch(position, batches)
        records = PartitionRecords(TP, Batches(fetched, LIMIT), aborted, position, None, None, True, 1)
        read += [(record.offset, record.key, record.value, fault_of(record)) for record in records]
        assert records.next_fetch_offset > position
        position = records.next_fetch_offset

    assert read == [
        (record.offset, record.key, record.value, None) for record in log.committed if record.offset >= start
    ]


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\0\0\0\x05", b"\0\x07\0\x01"])
def test_an_unknown_control_record_ends_no_transaction(key):
    control = {"attributes": 0x30, "producer": (7, 0)}
    data = by_hand([(0, b"k", b"aborted", [])], attributes=0x10, producer=(7, 0))
    data += by_hand([(0, key, b"", [])], base=1, **control)
    data += by_hand([(0, b"k", b"aborted", [])], base=2, attributes=0x10, producer=(7, 0))
    data += by_hand([(0, b"\0\x01\0\0", b"", [])], base=3, **control) + small(1, base=4)

    assert [record.offset for record in decode(data, aborted=[(7, 0)])] == [4]


def test_a_wrong_checksum_remains_an_error():
    """A retry, or another replica, may return the batch intact."""
    damaged = bytearray(small())
    damaged[-1] ^= 1

    with pytest.raises(CorruptRecordException):
        decode(bytes(damaged))


# --- header names


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_header_name_that_is_not_utf_8_keeps_its_bytes(codec):
    names = [b"fine", b"\xff\xfe", b"caf\xe9", b"\xed\xa0\x80", b""]
    headers = [(name, b"\xff") for name in names]
    data = by_hand([(0, b"k", b"v", []), (1, b"key", b"value", headers), (2, None, None, [])], codec)

    before, record, after = decode(data)

    assert [name.encode("utf-8", "surrogateescape") for name, _ in record.headers] == names
    assert (record.key, record.value) == (b"key", b"value")
    assert (before.offset, record.offset, after.offset) == (0, 1, 2)
    assert record.timestamp == NOW


# --- batches that cannot be decoded


@pytest.mark.parametrize(
    ("codec", "compressed"),
    [(1, b"no gzip"), (2, b"\xff" * 9), (3, b"no lz4"), (4, b"no zstd"), (5, b"?"), (7, b"")],
)
def test_an_undecodable_batch_yields_a_placeholder_for_each_offset(codec, compressed):
    data = small(2) + by_hand([(n, b"k", b"v", []) for n in range(3)], codec, base=2, compressed=compressed)
    data += small(1, base=5)

    records = decode(data)

    assert [record.offset for record in records] == [0, 1, 2, 3, 4, 5]
    assert faults(records) == [(2, "undecodable"), (3, "undecodable"), (4, "undecodable")]
    lost = raw_record(records[2])
    assert (lost.key, lost.value, lost.headers, lost.timestamp_ms) == (None, None, (), NOW)
    assert "sha256" in lost.fault.message
    assert "up to offset 4" in lost.fault.message


def test_records_before_the_first_malformed_one_are_kept():
    good = by_hand([(0, b"k", b"v", []), (1, b"k", b"v", []), (2, b"k", b"v", [])])
    data = bytearray(good)
    data[-1] = 0x20  # the last record's header count

    records = decode(sealed(data))

    assert [record.value for record in records] == [b"v", b"v", None]
    assert faults(records) == [(2, "undecodable")]


@pytest.mark.parametrize("deltas", [(0, 0, 0), (2, 1, 0), (0, 5, 2), (0, 2, 2), (1, 2, 3), (-1, 0, 1)])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_wrong_offsets_in_a_batch_still_yield_one_record_per_offset(deltas, first):
    data = by_hand([(delta, b"k", b"%d" % delta, []) for delta in deltas])

    assert [record.offset for record in decode(data, offset=first)] == list(range(first, 3))


edits = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=8)


@settings(max_examples=150)
@given(any_records, st.sampled_from(list(CODECS.values())), edits, st.booleans())
def test_every_offset_is_yielded_once_whatever_bytes_a_producer_sends(records, codec, changes, inside):
    """`inside`: the payload is changed before compression."""
    data = bytearray(batch(records, 0 if inside else codec))
    for place, byte in changes:
        data[HEADER_BYTES + place % (len(data) - HEADER_BYTES)] = byte
    if inside and codec:
        data[HEADER_BYTES:] = ENCODERS[codec](bytes(data[HEADER_BYTES:]))
        struct.pack_into(">h", data, 21, codec)

    assert [record.offset for record in decode(sealed(data))] == list(range(len(records)))


@settings(max_examples=150)
@given(st.integers(1, 4), st.binary(max_size=200))
def test_decompressing_any_bytes_returns_bytes_or_raises(codec, data):
    refusals = record_batches._MalformedError, record_batches._TooLargeError, cramjam.DecompressionError
    with suppress(*refusals, zlib.error, struct.error):
        assert len(inflate(codec, memoryview(data), LIMIT)) <= LIMIT


# --- bounds


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_may_reach_but_not_exceed_the_limit(codec):
    value = bytes(LIMIT)
    compressed = ENCODERS[codec](value)

    assert inflate(codec, memoryview(compressed), LIMIT) == value
    with pytest.raises(record_batches._TooLargeError, match=r"exceeds batch_bytes"):
        inflate(codec, memoryview(compressed), LIMIT - 1)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_not_inflated_beyond_the_limit(codec):
    bomb = by_hand([(0, b"k", b" " * (32 * LIMIT), [])], codec)
    with traced() as memory:
        records = decode(bomb + small(1, base=1))

    assert faults(records) == [(0, "too_large")]
    assert records[1].value == b"value 0"
    assert memory.peak < 4 * LIMIT + 2 * len(bomb)


def test_single_block_snappy_as_written_by_librdkafka_is_decoded():
    payload = b"x" * 1000

    assert inflate(2, memoryview(bytes(cramjam.snappy.compress_raw(payload))), LIMIT) == payload


def test_a_gzip_stream_may_have_several_members():
    assert inflate(1, memoryview(gzip.compress(b"a") + gzip.compress(b"b")), LIMIT) == b"ab"


def test_a_batch_with_too_many_records_yields_placeholders():
    count = record_batches.MAX_RECORDS + 1
    data = by_hand([(n, None, None, []) for n in range(count)], 4)

    records = decode(data, offset=count - 2)  # where an earlier poll has left it

    assert faults(records) == [(count - 2, "too_large"), (count - 1, "too_large")]


def test_headers_in_a_large_batch_are_bounded():
    """Each can take 2 bytes in the batch, but about a hundred in memory."""
    headers = [(b"", None)] * (record_batches.MAX_HEADERS + 1)
    value = bytes(record_batches.MAX_COMPILED_BYTES)
    data = by_hand([(0, b"k", value, []), (1, b"k", b"v", headers), (2, b"k", b"v", [])], 4)

    records = decode(data, limit=4 * LIMIT)

    assert records[0].value == value
    assert faults(records) == [(1, "too_large"), (2, "too_large")]


@pytest.mark.parametrize("place", ["value", "header"])
def test_a_fetch_ends_once_it_has_inflated_enough(place):
    """Otherwise many small bombs would be inflated at once. The rest comes with the next fetch."""
    large = bytes(record_batches.FETCH_BYTES_INFLATED // 2)
    record = (b"k", large, [], 1000) if place == "value" else (b"k", None, [("h", large)], 1000)
    data = b"".join(batch([record], 4, base) for base in range(5))
    assert [record.offset for record in decode(data, limit=8 * LIMIT)] == [0, 1]


@pytest.mark.parametrize("codec", ENCODERS)
@pytest.mark.parametrize(("count", "size"), [(12, LIMIT), (30_000, 0)])
def test_a_large_batch_is_yielded_in_parts(codec, count, size):
    """Otherwise every partition would hold one at the same time."""
    data = batch([(b"", bytes(size), [], 1000)] * count, codec)
    offsets, sizes = [], []
    while (start := len(offsets)) < count:
        part = decode(data, offset=start, limit=16 * LIMIT)
        offsets += [record.offset for record in part]
        sizes.append(sum(record_batches.RECORD_BYTES + len(record.value) for record in part))

    assert offsets == list(range(count))
    assert len(sizes) > 1
    assert max(sizes) < record_batches.FETCH_BYTES_INFLATED + 2 * LIMIT


class Consumer:
    """A started consumer whose broker answers each fetch in the same way."""

    def __init__(self):
        self._fetcher = Fetcher.__new__(Fetcher)
        vars(self._fetcher).update(
            _client=self,
            _client_rack=None,
            _records={},
            _key_deserializer=None,
            _value_deserializer=None,
            _check_crcs=True,
            _isolation_level=1,
            _prefetch_backoff=0.0,
        )

    async def send(self, _node, _request):
        partition = (TP.partition, 0, 3, 3, [], small())
        return SimpleNamespace(API_VERSION=4, topics=[(TP.topic, [partition])])

    async def fetched(self):
        """Return the iterator over the records of a fetch."""
        request = SimpleNamespace(topics=[(TP.topic, [(TP.partition, 1, 0)])])
        state = SimpleNamespace(has_valid_position=True, position=1)
        assignment = SimpleNamespace(active=True, state_value=lambda _: state)
        assert await self._fetcher._proc_fetch_request(assignment, 0, request)
        return self._fetcher._records[TP]._partition_records


async def test_a_consumer_decodes_within_its_own_limit_and_others_as_the_client_does():
    consumers = [Consumer(), Consumer(), Consumer()]
    for consumer, limit in zip(consumers, (LIMIT, 2 * LIMIT), strict=False):
        decode_within(consumer, limit)

    limited, more, plain = [await consumer.fetched() for consumer in consumers]

    assert (limited._fetched.batch_bytes, more._fetched.batch_bytes) == (LIMIT, 2 * LIMIT)
    assert type(plain) is ClientPartitionRecords
    for records in (limited, more, plain):
        assert [record.offset for record in records] == [1, 2]
