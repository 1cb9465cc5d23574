"""The vectors of the windows that were embedded last: a window that comes again has its vector already.

Agents retry, and what differs between two tries may stand beyond the window: of 154 real traces 6 repeat the
window of an earlier one.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray


class RecentVectors:
    """Vectors by what the model read, the least recently used leave first; for several threads.

    Args:
        limit: how many; with 384 dimensions each takes 2 kB.
    """

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._vectors: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()
        self._lock = Lock()

    def find(self, ids: Sequence[int]) -> NDArray[np.float32] | None:
        """Return the vector of these token ids, shape (dimensions,), if it is here."""
        key = _key(ids)
        with self._lock:
            vector = self._vectors.get(key)
            if vector is not None:
                self._vectors.move_to_end(key)
            return vector

    def add(self, ids: Sequence[int], vector: NDArray[np.float32]) -> None:
        """Keep a copy of the vector, shape (dimensions,)."""
        key = _key(ids)
        with self._lock:
            self._vectors[key] = vector.copy()
            self._vectors.move_to_end(key)
            if len(self._vectors) > self._limit:
                self._vectors.popitem(last=False)


def _key(ids: Sequence[int]) -> bytes:
    return hashlib.sha256(np.array(ids, dtype=np.int64).tobytes()).digest()
