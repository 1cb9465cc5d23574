"""A record between two steps of its lane: each step takes one of these types and returns the next.

::

    RawRecord ─ take ─▶ Taken ─ score ─▶ Scored ─ remember ─▶ Remembered ─ publish ─▶ Published ─ finish ─▶
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TypeAlias

from schemas import ReasoningTrace
from worker.embedding.batcher import Embedded
from worker.lane.ledger import Entry, Failure
from worker.lane.records import OutputRecord, RawRecord


@dataclass(frozen=True, slots=True)
class Redelivered:
    """A record that the ledger has an entry for: it is neither embedded nor scored again."""

    record: RawRecord
    taken_at: float
    entry: Entry


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is no trace, or is not to be read."""

    record: RawRecord
    taken_at: float
    failure: Failure


@dataclass(frozen=True, slots=True)
class Readable:
    """A trace that waits for its embedding; None without an embedder."""

    record: RawRecord
    taken_at: float
    trace: ReasoningTrace
    embedding: asyncio.Future[Embedded] | None


Taken: TypeAlias = Redelivered | Unreadable | Readable
"""A record with room in the lane; ``taken_at`` is in seconds of ``time.monotonic``."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A record whose outcome is decided.

    Attributes:
        entry: the outcome.
        entry_value: the entry's bytes for the changelog; None when it is there already.
        fallen: source offsets of the entries that this one pushed out of the ring.
    """

    taken: Taken
    entry: Entry
    entry_value: bytes | None = None
    embedded: Embedded | None = None
    fallen: list[int] = field(default_factory=list)

    @property
    def record(self) -> RawRecord:
        """The raw record."""
        return self.taken.record


@dataclass(frozen=True, slots=True)
class Remembered:
    """A record whose entry is on its way to the changelog; ``delivery`` is None when it is there already."""

    scored: Scored
    delivery: asyncio.Future[int] | None
    sent_at: float


@dataclass(frozen=True, slots=True)
class Published:
    """A record whose output is on its way."""

    scored: Scored
    output: OutputRecord
    delivery: asyncio.Future[int]
    sent_at: float
