"""Dead letters, and the selection of some of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Self

from msgspec.structs import replace

from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_kafka.topic_reader import Record, raw_record
from knowledgepulse_schemas import DeadLetterHeaders
from knowledgepulse_schemas.dead_letter import ATTEMPT, Form, Reason
from knowledgepulse_worker.records.outputs import with_original_timestamp
from knowledgepulse_worker.tools.terminal.arguments import Period


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A parsed record of the dead-letter topic.

    Attributes:
        partition: the partition of the dead-letter topic.
        offset: the offset in the dead-letter topic.
        headers: the headers that the worker added.
        record: the original raw record; its value may be truncated.
    """

    partition: int
    offset: int
    headers: DeadLetterHeaders
    record: RawRecord

    @classmethod
    def read(cls, record: Record) -> Self | None:
        """Parse a record; None if it was not written by a worker."""
        try:
            headers = DeadLetterHeaders.from_kafka(record.headers)
        except ValueError:
            return None
        raw = replace(
            with_original_timestamp(raw_record(record)),
            topic=headers.topic,
            partition=headers.partition,
            offset=headers.offset,
            headers=DeadLetterHeaders.original(record.headers),
        )
        return cls(record.partition, record.offset, headers, raw)

    @property
    def location(self) -> str:
        """``partition/offset`` in the dead-letter topic."""
        return f"{self.partition}/{self.offset}"

    @property
    def attempts(self) -> int:
        """Number of replays so far."""
        return self.headers.attempt or 0

    @property
    def is_truncated(self) -> bool:
        """Whether the value is truncated."""
        return self.headers.value_length is not None

    @property
    def identity(self) -> bytes:
        """Identity of the raw record: its location in the raw topic and its fingerprint.

        Copies of a dead letter, which releases before 0.3.0 could publish after a crash, have the same one.
        """
        return f"{self.record.source} {fingerprint(self.record).hex()}".encode()

    def replay_headers(self) -> list[tuple[str, bytes | None]]:
        """Return the raw record's headers with the attempt incremented."""
        others = [header for header in self.record.headers if header[0] != ATTEMPT]
        return [*others, (ATTEMPT, b"%d" % (self.attempts + 1))]


def fingerprint(record: RawRecord) -> bytes:
    """Return 8 bytes that tell apart records at the same offset, as in a recreated topic."""
    return blake2b(record.value or b"", digest_size=8, key=(record.key or b"")[:64]).digest()


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter for dead letters, which must match all criteria.

    Attributes:
        reasons: the accepted reasons; empty accepts all.
        forms: the accepted forms of values; empty accepts all.
        since: the earliest timestamp of the raw record.
        until: the timestamp of the raw record must be earlier.
        source: the raw record's topic, or topic and partition, or topic, partition and offset.
    """

    reasons: tuple[Reason, ...] = ()
    forms: tuple[Form, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    source: tuple[str | int, ...] | None = None

    @property
    def period(self) -> Period:
        """The range of timestamps."""
        return Period(self.since, self.until)

    def __contains__(self, letter: DeadLetter) -> bool:
        record = letter.record
        source = (record.topic, record.partition, record.offset)
        return (
            (not self.reasons or letter.headers.reason in self.reasons)
            and (not self.forms or letter.headers.form in self.forms)
            and record.timestamp_ms in self.period
            and (self.source is None or source[: len(self.source)] == self.source)
        )
