"""The states of a record in its lane; a step takes one of these types and produces the next.

::

    RawRecord ─ take ─▶ Taken ─ score ─▶ Scored ─ remember ─▶ Remembered
              ─ publish ─▶ Published ─ confirm ─▶ Confirmed ─ finish ─▶
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TypeAlias

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.embedding.batcher import Embedded
from knowledgepulse_worker.records.entry import Entry, Failure
from knowledgepulse_worker.records.record import OutputRecord, RawRecord
from knowledgepulse_worker.scoring import Counts


@dataclass(frozen=True, slots=True)
class Redelivered:
    """A record with a ledger entry, which is neither embedded nor scored again."""

    record: RawRecord
    taken_at: float
    entry: Entry


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


Taken: TypeAlias = Redelivered | Undecodable | Decoded
"""A record admitted to the lane; ``taken_at`` is in seconds of ``time.monotonic``."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A record with its outcome.

    Attributes:
        entry: the outcome.
        entry_value: the entry's bytes for the changelog; None if it is already there.
        evicted: source offsets of the entries that this one evicted from the ring.
        counts: the trace's counts; None if no policy needed them when the record was scored.
    """

    taken: Taken
    entry: Entry
    entry_value: bytes | None = None
    embedded: Embedded | None = None
    evicted: list[int] = field(default_factory=list)
    counts: Counts | None = None

    @property
    def record(self) -> RawRecord:
        """The raw record."""
        return self.taken.record


@dataclass(frozen=True, slots=True)
class Remembered:
    """A record whose entry was sent to the changelog; ``delivery`` is None if it was already there."""

    scored: Scored
    delivery: asyncio.Future[int] | None
    sent_at: float


@dataclass(frozen=True, slots=True)
class Published:
    """A record whose output was sent."""

    scored: Scored
    output: OutputRecord
    delivery: asyncio.Future[int]
    sent_at: float


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A record whose output the broker has confirmed.

    Attributes:
        entry: its final outcome; differs from ``scored.entry`` if the first output was rejected.
        output: the record that the broker confirmed.
        sent_at: when the first output was sent (``time.monotonic``).
    """

    scored: Scored
    entry: Entry
    output: OutputRecord
    sent_at: float
