"""The novelty cache: the vectors of the most recent traces, searched by brute force."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from knowledgepulse_worker.scoring.look_ups import NOT_FINITE, Found, look_ups

# Exceeds the rounding error of a float32 dot product of unit vectors of up to a few thousand dimensions.
_ROUNDING = 1e-5
_AT_ONCE = 512

Vector: TypeAlias = NDArray[np.float32]


LOOK_UPS = 8
"""How many look-ups are computed at once at most; more take hardly less time each."""


class Nearest(Struct, frozen=True, gc=False):
    """The cache entry most similar to a vector.

    Attributes:
        similarity: cosine similarity, -1 to 1.
        id: the entry's id, if any.
    """

    similarity: float
    id: str | None


class _Entries:
    """The arrays of a cache's entries, of which each slot has a vector, its time and its id.

    Attributes:
        times: seconds since the epoch, shape (slots,).
        ids: their ids.
        compiled: the look-ups of the compiled library, if there is one. It keeps the vectors, and the
            others have no slots.
        matrix: the vectors, shape (slots, dimensions).
        digests: of the vectors' bytes, shape (slots,).
        similarities: those of the vectors that are expected, shape (:data:`LOOK_UPS`, slots).
    """

    def __init__(self, slots: int, dimensions: int) -> None:
        self.times = np.zeros(slots, dtype=np.float64)
        self.ids: list[str | None] = [None] * slots
        self.compiled = look_ups(self.times, dimensions)
        kept = slots if self.compiled is None else 0
        self.matrix = np.zeros((kept, dimensions), dtype=np.float32)
        self.digests = np.zeros(kept, dtype=np.uint64)
        self.similarities = np.zeros((LOOK_UPS, kept), dtype=np.float32)


class VectorCache:
    """A first-in-first-out ring of unit vectors in one contiguous matrix.

    A look-up is one matrix-vector product over the entries, O(entries x dimensions). Its result depends, to
    the last bit, only on the vectors and their order, not on their positions in the ring. Therefore a rebuilt
    cache gives the same results as the lost one.

    The cache never deletes by age: ``ttl`` filters at look-up, so that the entries that a trace is compared
    with depend on its own time, not on other look-ups. That keeps scores the same when records are
    scored again after a crash.

    Args:
        max_elements: the maximum number of vectors; the oldest is evicted first.
        dimensions: the length of every vector.
        ttl: seconds; a look-up at time t sees the entries since t - ttl. None means all entries.

    Raises:
        ValueError: a size or the ttl is not positive.
    """

    def __init__(self, max_elements: int = 1000, dimensions: int = 384, ttl: float | None = None) -> None:
        if max_elements < 1 or dimensions < 1:
            raise ValueError(
                f"max_elements and dimensions must be at least 1, got {max_elements} and {dimensions}"
            )
        if ttl is not None and ttl <= 0:
            raise ValueError(f"ttl must be more than 0 seconds, got {ttl}")
        self.max_elements = max_elements
        self.dimensions = dimensions
        self.ttl = ttl
        self._expected: list[ArrayLike] = []
        self._rows: dict[int, int] = {}  # of what is expected, by identity
        self._expected_units = np.zeros((0, dimensions), dtype=np.float32)
        self._added = 0

    @cached_property
    def _entries(self) -> _Entries:
        """Made with the first vector: without an embedder, a worker of a thousand partitions has none."""
        return _Entries(self.max_elements, self.dimensions)

    @property
    def size(self) -> int:
        """The number of vectors in the cache."""
        return min(self._added, self.max_elements)

    def __len__(self) -> int:
        return self.size

    @property
    def _oldest(self) -> int:
        """The slot of the oldest vector."""
        return self._added % self.max_elements if self._added > self.max_elements else 0

    def add(self, vector: ArrayLike, *, id: str | None = None, at: float | None = None) -> None:  # noqa: A002
        """Add a vector, normalised to length 1, and evict the oldest vector if the cache is full.

        Args:
            vector: shape (dimensions,); a zero vector stays zero and is similar to nothing.
            id: identifies the entry in the result of :meth:`nearest`.
            at: the entry's time in seconds since the epoch; by default, now.

        Raises:
            ValueError: the vector has another shape, or is not finite.
        """
        slot, entries = self._added % self.max_elements, self._entries
        if entries.compiled is not None:
            entries.compiled.put(self._array(vector), slot)
        else:
            entries.matrix[slot] = unit = self._unit(vector)
            entries.similarities[: len(self._expected), slot] = self._expected_units @ unit
            entries.digests[slot] = int.from_bytes(blake2b(unit.tobytes(), digest_size=8).digest())
        entries.times[slot] = time.time() if at is None else at
        entries.ids[slot] = id
        self._added += 1

    def expect(self, vectors: Sequence[ArrayLike]) -> None:
        """Compute the similarities for the next look-ups, up to :data:`LOOK_UPS`, at once.

        A matrix that exceeds the processor's cache is read once for all of them. The results are the same,
        whatever is added before a look-up. The compiled library, which reads a quarter of it, needs no help.

        Args:
            vectors: the vectors, which do not change before they are looked up; by identity. If one cannot
                be looked up, none is expected.
        """
        entries = self._entries
        if entries.compiled is not None:
            return
        self._expected, self._rows = [], {}
        try:
            units = np.stack([*map(self._unit, vectors)])
        except ValueError:
            return
        self._expected, self._expected_units = [*vectors], units
        self._rows = {id(vector): row for row, vector in enumerate(self._expected)}
        entries.similarities[: len(units), : self.size] = (entries.matrix[: self.size] @ units.T).T

    def nearest(self, vector: ArrayLike, *, at: float | None = None) -> Nearest | None:
        """Return the most similar entry, the oldest among equals, or None if there is none to compare with.

        Args:
            vector: shape (dimensions,).
            at: the time of the look-up, from which the ttl counts back; by default, now.

        Raises:
            ValueError: the vector has another shape, or is not finite.
        """
        size = self.size
        if size == 0:
            self._unit(vector)  # an invalid one is refused, whatever there is to compare it with
            return None
        since = -math.inf if self.ttl is None else (time.time() if at is None else at) - self.ttl
        entries = self._entries
        if entries.compiled is None:
            found = self._nearest(self._unit(vector), self._rows.get(id(vector)), since)
        else:
            found = entries.compiled.nearest(self._array(vector), size, self._oldest, since)
        return None if found is None else Nearest(found.similarity, entries.ids[found.slot])

    def _nearest(self, unit: Vector, row: int | None, since: float) -> Found | None:
        """Return the nearest entry without the compiled library.

        Args:
            unit: the vector, of length 1 or 0.
            row: its number among those that were expected, if it was.
            since: the time from which on entries count.
        """
        size, entries = self.size, self._entries
        similarities = entries.matrix[:size] @ unit if row is None else entries.similarities[row, :size]
        if since > -math.inf:
            similarities = np.where(entries.times[:size] < since, np.float32(-np.inf), similarities)
        highest = np.maximum.reduce(similarities)
        if highest == -np.inf:
            return None
        # The product's last digits depend on a row's position in the matrix, so the similarities of the rows
        # near the maximum are computed again row by row.
        slots = (similarities >= highest - _ROUNDING).nonzero()[0]
        if len(slots) > 1:
            slots = self._different(slots)
        exact = self._exact(slots, unit.astype(np.float64))
        first = int(exact.argmax())
        return Found(int(slots[first]), float(exact[first]))

    def _exact(self, slots: NDArray[np.intp], unit: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the similarities of entries, computed so many at a time as the processor's cache holds."""
        matrix = self._entries.matrix
        if len(slots) == 1:  # as nearly always
            row = matrix[slots[0]].astype(np.float64)
            return np.array([np.add.reduce(np.multiply(row, unit, out=row))])
        exact = np.empty(len(slots))
        for start in range(0, len(slots), _AT_ONCE):
            end = min(start + _AT_ONCE, len(slots))
            rows = matrix[slots[start:end]].astype(np.float64)
            np.add.reduce(np.multiply(rows, unit, out=rows), axis=1, out=exact[start:end])
        return exact

    def max_cosine_similarity(self, vector: ArrayLike, *, at: float | None = None) -> float | None:
        """Return the similarity of :meth:`nearest`, or None if there is nothing to compare with."""
        nearest = self.nearest(vector, at=at)
        return None if nearest is None else nearest.similarity

    def clear(self) -> None:
        """Remove all entries."""
        self._added = 0

    def _different(self, slots: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the slots by age, only the oldest of equal vectors, since retries add many equal ones."""
        younger, older = np.split(slots, [slots.searchsorted(self._oldest)])
        by_age = np.concatenate([older, younger])
        digests = self._entries.digests[by_age]
        order = digests.argsort(kind="stable")  # np.unique does the same in twice the time
        is_first = np.ones(len(order), bool)
        np.not_equal(digests[order[1:]], digests[order[:-1]], out=is_first[1:])
        different: NDArray[np.intp] = by_age[np.sort(order[is_first])]
        return different

    def _unit(self, vector: ArrayLike) -> Vector:
        if (row := self._rows.get(id(vector))) is not None:
            unit: Vector = self._expected_units[row]
            return unit
        array = self._array(vector)
        norm = np.sqrt(np.add.reduce(np.square(array, dtype=np.float64)))
        if not np.isfinite(norm):
            raise ValueError(NOT_FINITE)
        # NumPy 1 would divide by a scalar in the array's own precision.
        return np.divide(array, norm, dtype=np.float64).astype(np.float32) if norm > 0 else array

    def _array(self, vector: ArrayLike) -> Vector:
        array = np.asarray(vector, dtype=np.float32)
        if array.shape != (self.dimensions,):
            raise ValueError(f"expected a vector of shape ({self.dimensions},), got {array.shape}")
        return array
