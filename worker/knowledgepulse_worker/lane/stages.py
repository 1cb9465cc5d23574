"""The states of a record in its lane: taken, scored, completed. None changes once it is made.

``record_reader`` makes the first, ``record_scorer`` the second, ``replacements`` the third.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import ClassVar, TypeAlias

import msgspec

from knowledgepulse_kafka.records import OutputRecord, RawRecord
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_schemas.dead_letter import Form, Reason
from knowledgepulse_worker.embedding.batcher import EmbeddedText
from knowledgepulse_worker.records.decode import ScorableTrace, decode_trace
from knowledgepulse_worker.records.ledger_records import Entry, Failure
from knowledgepulse_worker.records.wrapping import UNREAD, ValueRead
from knowledgepulse_worker.scoring import AddedScore, Counts, Scorable, Score

MAX_MESSAGE = 1000
"""Maximum characters of an error message in a dead letter."""


def bounded_failure(reason: Reason, error: Exception) -> Failure:
    """Return an error as a dead letter's failure, with its message cut to :data:`MAX_MESSAGE`."""
    return Failure(reason, type(error).__name__, str(error)[:MAX_MESSAGE])


class UndecodableRecord(msgspec.Struct, frozen=True):
    """A record that is not a valid trace, or is poison and must not be decoded."""

    record: RawRecord
    taken_at: float
    failure: Failure
    read: ValueRead = UNREAD
    is_ready: ClassVar[bool] = True


class DecodedRecord(msgspec.Struct, frozen=True, gc=False):
    """A trace that waits for its embedding, if there is an embedder."""

    record: RawRecord
    taken_at: float
    decoded: ScorableTrace
    embedding: asyncio.Future[EmbeddedText] | None

    @property
    def trace(self) -> ReasoningTrace:
        """The members that the schema names, which are decoded now if those of a bare trace were checked."""
        value = self.record.value or b""
        return self.decoded.trace or decode_trace(value, len(value))

    @property
    def read(self) -> ValueRead:
        """What reading the record's value found."""
        return self.decoded

    @property
    def is_ready(self) -> bool:
        """Whether the trace can be scored."""
        return self.embedding is None or (self.embedding.done() and not self.embedding.cancelled())


TakenRecord: TypeAlias = UndecodableRecord | DecodedRecord
"""A record admitted to the lane; ``taken_at`` is in seconds of ``time.monotonic``."""


class Scored(msgspec.Struct, frozen=True, gc=False):
    """A record with its outcome, scored or not, whose output is to be built.

    Of the trace, only the members that are reported are kept. The others take most of its memory, which the
    next traces reuse.

    Attributes:
        record: the raw record.
        taken_at: when it was taken (``time.monotonic``).
        entry: the outcome.
        trace: what is read of the trace; None if it could not be decoded.
        form: what a value is that holds no trace; None if it holds one or was not examined.
        score: the score; None for an unscored record.
        added: the score among the last ones of its domain; None if a share did not rank it.
        embedded: the trace's vector and its timings.
        counts: the trace's counts; None if no policy needed them when the record was scored.
        scored_at: when it was scored (``time.monotonic``).
    """

    record: RawRecord
    taken_at: float
    entry: Entry
    trace: Scorable | None = None
    form: Form | None = None
    score: Score | None = None
    added: AddedScore | None = None
    embedded: EmbeddedText | None = None
    counts: Counts | None = None
    scored_at: float = msgspec.field(default_factory=time.monotonic)


class Completed(msgspec.Struct, frozen=True, gc=False):
    """A record with all that the next transaction publishes of it.

    Attributes:
        scored: the record with its outcome.
        entry: the outcome that the output tells: a failure if a topic does not accept that of the score.
        output: the record for the output topic; None for a record that is skipped.
        ledger_record: the record for the changelog; None without a vector.
        redacted_copy: the redacted copy; None if there is none to make.
    """

    scored: Scored
    entry: Entry
    output: OutputRecord | None = None
    ledger_record: OutputRecord | None = None
    redacted_copy: OutputRecord | None = None

    def records(self) -> Iterator[OutputRecord]:
        """Yield the records to publish."""
        for record in (self.ledger_record, self.output, self.redacted_copy):
            if record is not None:
                yield record
