"""A cache of the most recently computed vectors, by the window of the text.

Agents retry, and two attempts may differ only beyond the window. For example, 6 of 154 real traces repeat the
window of an earlier one.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray


class EmbeddingCache:
    """A thread-safe LRU cache of vectors by token ids.

    Args:
        limit: the maximum number of vectors; a vector with 384 dimensions takes 2 kB.
    """

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._vectors: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()
        self._lock = Lock()

    def find(self, ids: Sequence[int]) -> NDArray[np.float32] | None:
        """Return the cached vector of these token ids, shape (dimensions,), or None."""
        key = _key(ids)
        with self._lock:
            vector = self._vectors.get(key)
            if vector is not None:
                self._vectors.move_to_end(key)
            return vector

    def add(self, ids: Sequence[int], vector: NDArray[np.float32]) -> None:
        """Cache a copy of the vector, shape (dimensions,)."""
        key = _key(ids)
        with self._lock:
            self._vectors[key] = vector.copy()
            self._vectors.move_to_end(key)
            if len(self._vectors) > self._limit:
                self._vectors.popitem(last=False)


def _key(ids: Sequence[int]) -> bytes:
    return hashlib.sha256(np.array(ids, dtype=np.int64).tobytes()).digest()
