"""Kafka records as the lanes see them, independent of the client library."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""In order, duplicates and null values included (KIP-82)."""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record of the raw topic.

    Attributes:
        timestamp_ms: milliseconds since the epoch; -1 when the record has none.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def source(self) -> str:
        """``topic/partition/offset``: what consumers of the outputs drop repeats by."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")

    @property
    def fingerprint(self) -> bytes:
        """See :func:`fingerprint`."""
        return fingerprint(self.key, self.value)


def fingerprint(key: bytes | None, value: bytes | None) -> bytes:
    """Return 8 bytes that tell a record from another one at the same offset of a recreated topic."""
    return blake2b(value or b"", digest_size=8, key=(key or b"")[:64]).digest()


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """A record to publish; ``partition`` None lets the key decide."""

    topic: str
    partition: int | None
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
