"""Novelty, recomputed: what a record was compared with, and how well that can still be told."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from worker.audit.report import Unaudited
from worker.lane.ledger import ScoreHeader
from worker.scoring import Nearest, VectorCache
from worker.scoring.dimensions import novelty
from worker.settings import CacheSettings

Origin = Literal["ledger", "text", "no_vector", "other_model"]
"""Where a vector comes from, or why there is none."""

Basis: TypeAlias = Literal["ledger", "text"] | Unaudited
"""What a novelty is recomputed from, or why it cannot be."""


@dataclass(slots=True)
class Remembered:
    """A scored record, as it was compared with earlier ones, and later ones with it.

    Attributes:
        trace_id: None where neither the record nor its entry is there any more.
        at: the record's time in seconds.
        model: the embedder's identity; "" where there was none, None for the configured one.
        vector: shape (dimensions,), float32; None where it cannot be had.
        origin: where the vector comes from, or why there is none.
    """

    trace_id: str | None
    at: float
    model: str | None
    vector: NDArray[np.float32] | None
    origin: Origin


class Memory:
    """The novelty cache as it must have been, rebuilt record by record.

    Where a vector cannot be had, its place is kept: what leaves the cache when does not depend on it.

    Args:
        settings: its size, dimensions and ttl.
        model: of the first record.
    """

    def __init__(self, settings: CacheSettings, model: str | None) -> None:
        self._settings = settings
        self._model = model
        self._forget()

    def _forget(self) -> None:
        self._cache = VectorCache(self._settings.max_elements, self._settings.dimensions, self._settings.ttl)
        self._members: deque[Remembered] = deque(maxlen=self._settings.max_elements)
        self._origins: Counter[Origin] = Counter()
        self._doubt: Unaudited | None = None
        self._doubtful = 0

    def doubt(self, reason: Unaudited) -> None:
        """Note that something else may have been in the cache; it has left it after ``max_elements`` more."""
        self._doubt, self._doubtful = reason, self._settings.max_elements

    def __bool__(self) -> bool:
        return bool(self._members)

    def use(self, model: str | None) -> None:
        """Note the model that comes next; the worker never compares the vectors of two."""
        if model != self._model:
            self._model = model
            self._forget()

    def add(self, record: Remembered) -> None:
        """Remember a record; the oldest leaves when the cache is full."""
        if record.model == "":
            return
        if len(self._members) == self._members.maxlen:
            self._origins[self._members[0].origin] -= 1
        self._members.append(record)
        self._origins[record.origin] += 1
        vector = np.zeros(self._settings.dimensions) if record.vector is None else record.vector
        self._cache.add(vector, id=record.trace_id, at=record.at)
        self._doubtful -= 1

    def basis(self, record: Remembered) -> Basis:
        """Say what a record's novelty is recomputed from, or why it cannot be."""
        if record.model == "":
            return "ledger"
        if self._doubt is not None and self._doubtful > 0:
            return self._doubt
        if not self._members:
            return "ledger"
        origins = [record.origin, *(origin for origin, count in self._origins.items() if count)]
        order: tuple[Origin, ...] = ("other_model", "no_vector", "text", "ledger")
        return next(origin for origin in order if origin in origins)

    def check(self, record: Remembered, header: ScoreHeader, tolerance: float) -> list[str]:
        """Hold a published novelty, and the trace that it names as nearest, against the cache.

        Args:
            record: what was scored.
            header: what was published.
            tolerance: how much a similarity may differ.
        """
        nearest = self._nearest(record)
        expected = novelty(None if nearest is None else nearest.similarity)
        wrong = []
        if not abs(header.novelty - expected) <= tolerance:
            wrong.append(f"novelty is {header.novelty:.9g}, recomputed {expected:.9g}")
        if (header.nearest is None) != (nearest is None):
            wrong.append("nearest is null, there is one" if nearest else "nearest is set, there is none")
        elif nearest is not None and header.nearest != nearest.id:
            wrong += self._check_nearest(record, header, nearest, tolerance)
        return wrong

    def _nearest(self, record: Remembered) -> Nearest | None:
        if not self._members or record.vector is None:
            return None
        return self._cache.nearest(record.vector, at=record.at)

    def _check_nearest(
        self, record: Remembered, header: ScoreHeader, nearest: Nearest, tolerance: float
    ) -> list[str]:
        named = VectorCache(self._settings.max_elements, self._settings.dimensions, self._settings.ttl)
        for member in self._members:
            if member.trace_id == header.nearest and member.vector is not None:
                named.add(member.vector, at=member.at)
        similarity = (
            None if record.vector is None else named.max_cosine_similarity(record.vector, at=record.at)
        )
        if similarity is None:
            return ["nearest is no trace that it was compared with"]
        if nearest.similarity - similarity > tolerance:
            return [f"nearest is not: another trace is nearer by {nearest.similarity - similarity:.9g}"]
        return []
