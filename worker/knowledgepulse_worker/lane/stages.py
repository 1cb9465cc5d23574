"""The states of a record in its lane: taken, then scored, then committed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.embedding.batcher import Embedded
from knowledgepulse_worker.records.entry import Entry, Failure
from knowledgepulse_worker.records.record import OutputRecord, RawRecord
from knowledgepulse_worker.scoring import Counts, Score


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A record that is not a valid trace, or is poison and must not be decoded."""

    record: RawRecord
    taken_at: float
    failure: Failure


@dataclass(frozen=True, slots=True)
class Decoded:
    """A trace that waits for its embedding, if there is an embedder."""

    record: RawRecord
    taken_at: float
    trace: ReasoningTrace
    embedding: asyncio.Future[Embedded] | None

    @property
    def is_ready(self) -> bool:
        """Whether the trace can be scored."""
        return self.embedding is None or (self.embedding.done() and not self.embedding.cancelled())


Taken: TypeAlias = Undecodable | Decoded
"""A record admitted to the lane; ``taken_at`` is in seconds of ``time.monotonic``."""


@dataclass(slots=True)
class Scored:
    """A record with its outcome, which the next transaction commits.

    Attributes:
        entry: the outcome.
        score: the score; None for an unscored record.
        scored_at: when it was scored (``time.monotonic``).
        output: the record for the output topic; None for a record that is skipped.
        embedded: the trace's vector and its timings.
        counts: the trace's counts; None if no policy needed them when the record was scored.
        ledger: the record for the changelog; None without a vector.
        copying: makes the redacted copy; None if there is none to make.
        copy: the redacted copy, once it is made.
    """

    taken: Taken
    entry: Entry
    score: Score | None = None
    scored_at: float = field(default_factory=time.monotonic)
    output: OutputRecord | None = None
    embedded: Embedded | None = None
    counts: Counts | None = None
    ledger: OutputRecord | None = None
    copying: asyncio.Task[OutputRecord] | None = None
    copy: OutputRecord | None = None

    @property
    def record(self) -> RawRecord:
        """The raw record."""
        return self.taken.record

    @property
    def is_complete(self) -> bool:
        """Whether every record to publish is there."""
        return self.copying is None or self.copy is not None

    def records(self) -> Iterator[OutputRecord]:
        """Yield the records to publish."""
        for record in (self.ledger, self.output, self.copy):
            if record is not None:
                yield record
