"""A batch of records in format v2, written with one copy of each value and the processor's checksum.

It takes the place of aiokafka's ``BatchBuilder``, whose methods it has as far as they are called. Where the
processor has no such instruction, aiokafka's own is faster.

Record format: https://kafka.apache.org/documentation/#messageformat
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import Literal, TypeAlias

from aiokafka.producer.message_accumulator import BatchBuilder

from knowledgepulse_kafka.checksums import by_client, checksum, checksum_of_array

_HEADER = Struct(">qiibIhiqqqhii")
_CRC = Struct(">I")
_FRAME, _CRC_OFFSET, _ATTRIBUTES_OFFSET = 12, 17, 21
_MAGIC, _TRANSACTIONAL = 2, 0x10
_NULL = b"\1"


class OutputBatch:
    """A batch of a transaction.

    Args:
        limit: the largest size in bytes, unless a single record is larger.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = _HEADER.size
        self._count = 0
        self._first = self._latest = 0
        self._producer = (-1, -1, 0)
        self._built: bytearray | None = None

    def append(
        self,
        *,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
    ) -> Literal[True] | None:
        """Append a record; return None if the batch has no room for it.

        Args:
            timestamp: in milliseconds since the epoch.
            key: the key.
            value: the value.
            headers: the headers.
        """
        if not self._count:
            self._first = self._latest = timestamp
        head = b"\0%b%b%b%b" % (
            _number(timestamp - self._first),
            _number(self._count),
            _NULL if key is None else _number(len(key)) + key,
            _NULL if value is None else _number(len(value)),
        )
        fields = [
            _name(name) + (_NULL if content is None else _number(len(content)) + content)
            for name, content in headers
        ]
        tail = _number(len(fields)) + b"".join(fields)
        body = len(head) + len(tail) + (0 if value is None else len(value))
        length = _number(body)
        size = self._size + len(length) + body
        if self._count and size > self._limit:
            return None
        self._parts += (length, head, value or b"", tail)
        self._size, self._count = size, self._count + 1
        self._latest = max(self._latest, timestamp)
        return True

    def close(self) -> None:
        """Do nothing: the client appends no records of its own to it."""

    def closed(self) -> bool:
        """Return that the client need not wait for more records."""
        return True

    def size(self) -> int:
        """Return the size in bytes."""
        return self._size

    def record_count(self) -> int:
        """Return the number of records."""
        return self._count

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._producer = (producer_id, producer_epoch, base_sequence)

    def _build(self) -> bytearray:
        """Return the batch; the client asks again if it sends it again."""
        if self._built is None:
            data = bytearray().join((bytes(_HEADER.size), *self._parts))
            last, length = self._count - 1, len(data) - _FRAME
            times, producer = (self._first, self._latest), self._producer
            head = (0, length, -1, _MAGIC, 0, _TRANSACTIONAL, last, *times, *producer, self._count)
            _HEADER.pack_into(data, 0, *head)
            _CRC.pack_into(data, _CRC_OFFSET, checksum_of_array(data, _ATTRIBUTES_OFFSET))
            self._built, self._parts = data, []
        return self._built


Batch: TypeAlias = OutputBatch | BatchBuilder


def new_batch(limit: int) -> Batch:
    """Return a batch of a transaction; see :class:`OutputBatch`."""
    return BatchBuilder(limit, 0, is_transactional=1) if checksum is by_client else OutputBatch(limit)


def _encoded(number: int) -> bytes:
    """Return a number as Kafka's variable-length integer, zigzag-encoded."""
    left = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


_SMALL = [*map(_encoded, range(8192))]
"""The numbers of one or two bytes."""


def _number(number: int) -> bytes:
    return _SMALL[number] if 0 <= number < len(_SMALL) else _encoded(number)


@lru_cache(256)
def _name(name: str) -> bytes:
    encoded = name.encode()
    return _encoded(len(encoded)) + encoded
