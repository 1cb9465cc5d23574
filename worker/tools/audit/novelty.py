"""Recompute novelty from the records that preceded each record."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.records.entry import Entry, ScoreHeader, decode_vector
from knowledgepulse_worker.scoring import Nearest, VectorCache
from knowledgepulse_worker.scoring.dimensions import novelty
from knowledgepulse_worker.settings import CacheSettings
from knowledgepulse_worker.tools.audit.checks import ROUNDING
from knowledgepulse_worker.tools.audit.report import Unaudited


@dataclass(slots=True)
class Remembered:
    """A scored record in the novelty cache.

    Attributes:
        trace_id: the trace's id; None if neither the record nor its entry exists any more.
        at: the record's timestamp in seconds.
        model: the embedder's identity; "" without an embedder, None if the changelog has no entry.
        vector: shape (dimensions,), float32; None if the changelog does not have it.
    """

    trace_id: str | None
    at: float
    model: str | None
    vector: NDArray[np.float32] | None


class Memory:
    """The worker's novelty cache, rebuilt record by record.

    A record without an available vector still occupies its slot, since evictions do not depend on vectors.

    Args:
        settings: size, dimensions and ttl of the cache.
        oldest_model: that of the oldest entry in the changelog. Entries leave it in offset order, so a record
            without one is older than those with one, and is taken to be of this model.
    """

    def __init__(self, settings: CacheSettings, oldest_model: str | None) -> None:
        self._settings = settings
        self._oldest_model = self._model = oldest_model
        self._forget()

    def _forget(self) -> None:
        self._cache = VectorCache(self._settings.max_elements, self._settings.dimensions, self._settings.ttl)
        self._members: deque[Remembered] = deque(maxlen=self._settings.max_elements)
        self._without_vector = 0
        self._doubt: Unaudited | None = None
        self._doubtful = 0

    def recall(self, entry: Entry | None, trace_id: str | None, timestamp_ms: int) -> Remembered:
        """Return a scored record with the vector in its ledger entry, if there is one."""
        model = self._oldest_model if entry is None else entry.model
        vector = None if entry is None or entry.vector is None else decode_vector(entry.vector)
        if vector is not None and vector.shape != (self._settings.dimensions,):
            vector = None
        return Remembered(trace_id, timestamp_ms / 1000, model, vector)

    def doubt(self, reason: Unaudited) -> None:
        """Mark the cache's content as uncertain until ``max_elements`` more records have replaced it."""
        self._doubt, self._doubtful = reason, self._settings.max_elements

    def __bool__(self) -> bool:
        return bool(self._members)

    def use(self, model: str | None) -> None:
        """Switch to the next record's model; the worker never compares vectors of different models."""
        if model != self._model:
            self._model = model
            self._forget()

    def add(self, record: Remembered) -> None:
        """Add a record; a full cache evicts the oldest."""
        if record.model == "":
            return
        if len(self._members) == self._members.maxlen:
            self._without_vector -= self._members[0].vector is None
        self._members.append(record)
        self._without_vector += record.vector is None
        vector = np.zeros(self._settings.dimensions) if record.vector is None else record.vector
        self._cache.add(vector, id=record.trace_id, at=record.at)
        self._doubtful -= 1

    def unaudited(self, record: Remembered) -> Unaudited | None:
        """Return why a record's novelty cannot be recomputed; None if it can."""
        if record.model == "":
            return None
        if self._doubt is not None and self._doubtful > 0:
            return self._doubt
        lacks_vector = record.vector is None or self._without_vector > 0
        return "no_vector" if self._members and lacks_vector else None

    def check(self, record: Remembered, header: ScoreHeader) -> list[str]:
        """Check a published novelty and its nearest trace against the cache."""
        nearest = self._nearest(record)
        expected = novelty(None if nearest is None else nearest.similarity)
        wrong = []
        if not abs(header.novelty - expected) <= ROUNDING:
            wrong.append(f"novelty is {header.novelty:.9g}, recomputed {expected:.9g}")
        if (header.nearest is None) != (nearest is None):
            wrong.append("nearest is null, expected a trace" if nearest else "nearest is set, expected null")
        elif nearest is not None and header.nearest != nearest.id:
            wrong += self._check_nearest(record, header, nearest)
        return wrong

    def _nearest(self, record: Remembered) -> Nearest | None:
        if not self._members or record.vector is None:
            return None
        return self._cache.nearest(record.vector, at=record.at)

    def _check_nearest(self, record: Remembered, header: ScoreHeader, nearest: Nearest) -> list[str]:
        named = VectorCache(self._settings.max_elements, self._settings.dimensions, self._settings.ttl)
        for member in self._members:
            if member.trace_id == header.nearest and member.vector is not None:
                named.add(member.vector, at=member.at)
        similarity = (
            None if record.vector is None else named.max_cosine_similarity(record.vector, at=record.at)
        )
        if similarity is None:
            return ["nearest is not a trace in the cache"]
        if nearest.similarity - similarity > ROUNDING:
            return [f"nearest is wrong: another trace is nearer by {nearest.similarity - similarity:.9g}"]
        return []
