"""Recompute novelty from the records that preceded each record."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.scoring import Nearest, Score, VectorCache
from knowledgepulse_worker.scoring.dimensions import novelty
from knowledgepulse_worker.settings import CacheSettings
from knowledgepulse_worker.tools.audit.audit_report import UnauditedReason

VectorOrigin = Literal["ledger", "text", "no_vector", "other_model"]
"""Origin of a vector, or why there is none."""

NoveltyBasis: TypeAlias = Literal["ledger", "text"] | UnauditedReason
"""The data that a novelty is recomputed from, or why it cannot be recomputed."""


@dataclass(slots=True)
class CachedRecord:
    """A scored record in the novelty cache.

    Attributes:
        trace_id: None if neither the record nor its entry exists any more.
        at: the record's timestamp in seconds.
        model: the embedder's identity; "" without an embedder, None for the configured one.
        vector: shape (dimensions,); None if it is not available.
        origin: the origin of the vector.
    """

    trace_id: str | None
    at: float
    model: str | None
    vector: NDArray[np.float32] | None
    origin: VectorOrigin


class RebuiltCache:
    """The worker's novelty cache, rebuilt record by record.

    A record without an available vector still occupies its slot, since evictions do not depend on vectors.

    ``model``: the first record's.
    """

    def __init__(self, settings: CacheSettings, model: str | None) -> None:
        self._settings = settings
        self._model = model
        self._forget()

    def _forget(self) -> None:
        self._cache = self._empty_cache()
        self._members: deque[CachedRecord] = deque(maxlen=self._settings.max_elements)
        self._origins: Counter[VectorOrigin] = Counter()
        self._doubt: UnauditedReason | None = None
        self._doubtful = 0

    def _empty_cache(self) -> VectorCache:
        return VectorCache(self._settings.max_elements, self._settings.dimensions, self._settings.ttl)

    def doubt(self, reason: UnauditedReason) -> None:
        """Mark the cache's content as uncertain until ``max_elements`` more records have replaced it."""
        self._doubt, self._doubtful = reason, self._settings.max_elements

    def __bool__(self) -> bool:
        return bool(self._members)

    def use(self, model: str | None) -> None:
        """Switch to the next record's model; the worker never compares vectors of different models."""
        if model != self._model:
            self._model = model
            self._forget()

    def add(self, record: CachedRecord) -> None:
        """Add a record; a full cache evicts the oldest."""
        if record.model == "":
            return
        if len(self._members) == self._members.maxlen:
            self._origins[self._members[0].origin] -= 1
        self._members.append(record)
        self._origins[record.origin] += 1
        vector = np.zeros(self._settings.dimensions) if record.vector is None else record.vector
        self._cache.add(vector, id=record.trace_id, at=record.at)
        self._doubtful -= 1

    def basis(self, record: CachedRecord) -> NoveltyBasis:
        """Return the data that a record's novelty is recomputed from, or why it cannot be recomputed."""
        if record.model == "":
            return "ledger"
        if self._doubt is not None and self._doubtful > 0:
            return self._doubt
        if not self._members:
            return "ledger"
        origins = [record.origin, *(origin for origin, count in self._origins.items() if count)]
        order: tuple[VectorOrigin, ...] = ("other_model", "no_vector", "text", "ledger")
        return next(origin for origin in order if origin in origins)

    def check(self, record: CachedRecord, score: Score, tolerance: float) -> list[str]:
        """Check a published novelty and its nearest trace; ``tolerance`` is that of a similarity."""
        nearest: Nearest | None = None
        if self._members and record.vector is not None:
            nearest = self._cache.nearest(record.vector, at=record.at)
        expected = novelty(None if nearest is None else nearest.similarity)
        wrong = []
        if not abs(score.novelty - expected) <= tolerance:
            wrong.append(f"novelty is {score.novelty:.9g}, recomputed {expected:.9g}")
        if (score.nearest is None) != (nearest is None):
            wrong.append("nearest is null, expected a trace" if nearest else "nearest is set, expected null")
        elif nearest is not None and score.nearest != nearest.id:
            wrong += self._check_nearest(record, score, nearest, tolerance)
        return wrong

    def _check_nearest(
        self, record: CachedRecord, score: Score, nearest: Nearest, tolerance: float
    ) -> list[str]:
        named = self._empty_cache()
        for member in self._members:
            if member.trace_id == score.nearest and member.vector is not None:
                named.add(member.vector, at=member.at)
        vector = record.vector
        similarity = None if vector is None else named.max_cosine_similarity(vector, at=record.at)
        if similarity is None:
            return ["nearest is not a trace in the cache"]
        if nearest.similarity - similarity > tolerance:
            return [f"nearest is wrong: another trace is nearer by {nearest.similarity - similarity:.9g}"]
        return []
