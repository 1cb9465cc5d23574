"""A dead letter, and which of them are meant."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from schemas import DeadLetterHeaders
from schemas.dead_letter import ATTEMPT
from worker.errors import Reason
from worker.kafka.reader import Record, raw_record
from worker.lane.outputs import with_original_timestamp
from worker.lane.records import RawRecord


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of the dead-letter topic, taken apart.

    Attributes:
        partition: its place in the dead-letter topic.
        offset: likewise.
        headers: what the worker wrote.
        record: what could not be scored, as it came: its place in the raw topic, its timestamp, key and
            headers; its value too, unless that was cut.
    """

    partition: int
    offset: int
    headers: DeadLetterHeaders
    record: RawRecord

    @classmethod
    def read(cls, record: Record) -> Self | None:
        """Return the dead letter; None for a record that no worker wrote."""
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
    def place(self) -> str:
        """``partition/offset`` in the dead-letter topic."""
        return f"{self.partition}/{self.offset}"

    @property
    def attempts(self) -> int:
        """How often it has been replayed."""
        return self.headers.attempt or 0

    @property
    def is_cut(self) -> bool:
        """Whether only the beginning of the value is here."""
        return self.headers.value_length is not None

    @property
    def identity(self) -> bytes:
        """What was not scored: its place in the raw topic, and what tells it from another record there.

        A dead letter that was published twice, as a crash can make it, has the same identity twice.
        """
        return f"{self.record.source} {self.record.fingerprint.hex()}".encode()

    def replay_headers(self) -> list[tuple[str, bytes | None]]:
        """Return the record's own headers, with the attempts counted one up."""
        others = [header for header in self.record.headers if header[0] != ATTEMPT]
        return [*others, (ATTEMPT, b"%d" % (self.attempts + 1))]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead letters are meant; those that fit all of it.

    Attributes:
        reasons: one of these; any when there are none.
        since: of this time or later; the time is the record's own, which the dead letter keeps.
        until: of an earlier time than this.
        source: topic, partition and offset that it came from, or only the first of these.
    """

    reasons: tuple[Reason, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    source: tuple[str | int, ...] | None = None

    @property
    def since_ms(self) -> int | None:
        """Milliseconds since the epoch."""
        return None if self.since is None else round(self.since.timestamp() * 1000)

    def __contains__(self, letter: DeadLetter) -> bool:
        record = letter.record
        source = (record.topic, record.partition, record.offset)
        return (
            (not self.reasons or letter.headers.reason in self.reasons)
            and (self.since_ms is None or record.timestamp_ms >= self.since_ms)
            and (self.until is None or record.timestamp_ms < self.until.timestamp() * 1000)
            and (self.source is None or source[: len(self.source)] == self.source)
        )
